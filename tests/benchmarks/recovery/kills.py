"""Kills nodes and ranks under a training; prints how soon all ranks do a new step.

    python tests/benchmarks/recovery/kills.py memory disk … [--kills 10]

A cluster of its own: two nodes work, the others are spares. Each kill ends everything
on one node at once. The rows:

- ``memory``: a node dies, a spare takes over, the state comes from copies in memory;
- ``disk``: the same without copies, from a checkpoint every 20 steps;
- ``frozen``: a node stops (SIGSTOP to all of it) and closes nothing;
- ``rank``: a rank is killed;
- ``stopped``: a rank is stopped (SIGSTOP); until it is named;
- ``batch-host``: the first node dies; a service of this process looks after the job;
- ``requeue``: what most people run, ``sbatch --requeue`` with srun, from its checkpoint;
- ``torchrun-rank``, ``torchrun-node``: torchrun --max-restarts, from the same checkpoint.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from hpcplat import eventlog
from hpcplat.eventlog import EventKind
from hpcplat.ledger import ledger
from tests.benchmarks.recovery.others import requeue, torchrun
from tests.benchmarks.recovery.service import batch_host
from tests.benchmarks.recovery.stage import Run, Stage, stage, until
from tests.benchmarks.recovery.timeline import draw
from tests.benchmarks.recovery.took import Took

STEPS_BETWEEN = 12
WARM = 5  # steps, until the length of one is known


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="*", default=["memory", "disk", "rank"])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--picture", type=Path, help="draw the first row's median")
    asked = parser.parse_args()
    with stage(nodes=2 + asked.kills) as here:
        print(HEAD, flush=True)
        for name in asked.rows:
            found = ROWS[name](here, asked.kills)
            print(_row(name, found), flush=True)
            if asked.picture and name == asked.rows[0]:
                _draw(found, asked.picture)
            here.recover()


HEAD = (
    "| what | times | median s | p95 s | slowest s | a step s | steps made again |"
    " detect | end | start and load | first step |\n" + "|---" * 11 + "|"
)


def _row(name: str, found: list[Took]) -> str:
    times = sorted(one.seconds for one in found)
    if not times:
        return f"| {name} | 0 | did not come back |" + " |" * 8
    late = times[min(len(times) - 1, round(0.95 * (len(times) - 1)))]
    usual = statistics.median(one.usual for one in found)
    phases = [
        statistics.median(one.phases[place] for one in found)
        if found[0].phases
        else 0.0
        for place in range(4)
    ]
    cells = [
        name,
        str(len(found)),
        *(f"{v:.2f}" for v in (statistics.median(times), late, times[-1], usual)),
        str(sum(one.lost for one in found)),
        *(f"{phase:.2f}" if phase else "" for phase in phases),
    ]
    return "| " + " | ".join(cells) + " |"


def _draw(found: list[Took], out: Path) -> None:
    middle = sorted(found, key=lambda one: one.seconds)[len(found) // 2]
    if middle.failure is not None:
        draw(middle.failure, out)


@dataclass(frozen=True)
class Harm:
    """What is done to a run's second node or one of its ranks; it needs a spare or not."""

    do: Callable[[Run], float]
    needs_spare: bool = True
    memory: int = 1


def _harmed(harm: Harm, here: Stage, times: int) -> list[Took]:
    """Do harm again and again to one job, and measure until all ranks do a new step."""
    spares = times if harm.needs_spare else 0
    run = here.submit(here.spec(spares, harm.memory))
    run.until_steps(WARM)
    begun = []
    for number in range(times):
        run.until_steps(STEPS_BETWEEN)
        begun.append(harm.do(run))
        until(
            lambda n=number: len(run.events(EventKind.RECOVERED)) > n,  # type: ignore[misc]
            "a recovery",
        )
    again = [event.details["at"] for event in run.events(EventKind.RECOVERED)]
    usual = [event.details["usual"] for event in run.events(EventKind.RECOVERING)]
    run.cancel()
    book = ledger(eventlog.read_all(run.folder.events)[0], time.time())
    return [
        Took(at - killed, step, one.lost_steps, one)
        for killed, at, step, one in zip(
            begun, again, usual, book.failures, strict=True
        )
    ]


def _kill_node(run: Run) -> float:
    return run.stage.kill(run.nodes[1])


def _freeze_node(run: Run) -> float:
    """Stop all of a node; it is killed once others have taken over."""
    node = run.nodes[1]
    found, when = run.stage.processes(node), time.time()
    for process in found:
        process.suspend()
    before = len(run.events(EventKind.RECOVERED))
    until(lambda: len(run.events(EventKind.RECOVERED)) > before, "a recovery")
    run.stage.kill(node)
    return when


def _kill_rank(run: Run) -> float:
    process, when = _rank(run, 3), time.time()
    process.kill()
    return when


def _stop_rank(run: Run) -> float:
    process, when = _rank(run, 3), time.time()
    process.suspend()
    return when


def _rank(run: Run, number: int) -> psutil.Process:
    """Return the process of a rank, by the log that it writes."""
    log = run.folder.attempt(1).rank_log(number)
    for process in run.stage.processes(run.nodes[number // 2]):
        try:
            files = {one.path for one in process.open_files()}
            is_leader = process.name() != "slurmstepd" and str(log) in files
        except psutil.Error:
            continue
        if is_leader:
            return process
    raise LookupError(f"rank {number} does not run")


def _stopped(here: Stage, times: int) -> list[Took]:
    """Stop a rank; until its name is told, in seconds."""
    run = here.submit(here.spec(0, 1))
    run.until_steps(WARM)
    begun = []
    for number in range(times):
        run.until_steps(STEPS_BETWEEN)
        begun.append(_stop_rank(run))
        until(
            lambda n=number: len(run.events(EventKind.RECOVERED)) > n,  # type: ignore[misc]
            "a recovery",
        )
    named = [event.time for event in run.events(EventKind.RANK_HANGS)]
    usual = [event.details["usual"] for event in run.events(EventKind.RECOVERING)]
    run.cancel()
    return [
        Took(at - stopped, step, 0)
        for stopped, at, step in zip(begun, named, usual, strict=True)
    ]


ROWS: dict[str, Callable[[Stage, int], list[Took]]] = {
    "memory": lambda here, times: _harmed(Harm(_kill_node), here, times),
    "disk": lambda here, times: _harmed(Harm(_kill_node, memory=0), here, times),
    "frozen": lambda here, times: _harmed(Harm(_freeze_node), here, times),
    "rank": lambda here, times: _harmed(Harm(_kill_rank, False), here, times),
    "stopped": _stopped,
    "batch-host": batch_host,
    "requeue": requeue,
    "torchrun-rank": lambda here, times: torchrun(here, times, node=False),
    "torchrun-node": lambda here, times: torchrun(here, times, node=True),
}


if __name__ == "__main__":
    main()
