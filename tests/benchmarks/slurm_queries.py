"""What asking Slurm costs with many jobs: one query for all, against one a job.

Run it as a script; it brings up a cluster of its own and takes it down:
    python -m tests.benchmarks.slurm_queries [--jobs 2000] [--rounds 9]

``jobs()`` is timed whole: the process, the answer, and 2,000 records with aware
times. Beside it stand the raw squeue that it calls (no record made), squeue as people
type it, its JSON (no record made either), and what a service does that asks for each
job by itself (timed on a sample, and counted up). The controller's own work is told
by ``sdiag``: requests per round and microseconds each.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from hpcplat import processes
from hpcplat.cluster import Cluster, ClusterSpec, up
from hpcplat.slurm import squeue
from hpcplat.slurm.answers import new_separator
from hpcplat.slurm.commandline import CommandLine
from hpcplat.slurm.scheduler import Submission

SAMPLE = 25  # jobs that are polled one by one in a round


def main() -> None:
    """Bring a cluster up, fill its queue, time the ways to ask, print the table."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="hpcplat-bench-") as folder:
        Path(folder).chmod(0o755)  # MariaDB's user must be able to enter
        settings = {"MaxJobCount": str(options.jobs + 1000)}
        spec = ClusterSpec(name="bench", folder=Path(folder) / "c", settings=settings)
        cluster = up(spec)
        try:
            _measure(cluster, options.jobs, options.rounds)
        finally:
            cluster.down()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What asking Slurm costs.")
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=9)
    return parser.parse_args()


def _measure(cluster: Cluster, jobs: int, rounds: int) -> None:
    environ = os.environ | cluster.environment()
    scheduler = CommandLine(cluster.folder.slurm_conf, environ=environ)
    began = time.perf_counter()
    ids = [scheduler.submit(_held(number)).job_id for number in range(jobs)]
    each = (time.perf_counter() - began) / jobs * 1000
    print(f"{jobs} held jobs were submitted, {each:.1f} ms each.", file=sys.stderr)

    def raw(*words: str) -> None:
        done = processes.run(["squeue", "--noheader", *words], timeout=60, env=environ)
        assert done.ok, done.stderr

    def poll() -> None:
        for job_id in ids[:SAMPLE]:
            raw(f"--jobs={job_id}", "--Format=State:30")

    def all_jobs() -> None:
        assert len(scheduler.jobs()) == jobs

    separator = new_separator()
    answer = processes.run(squeue.argv(separator), timeout=60, env=environ)
    scale = jobs / SAMPLE
    ways: list[tuple[str, float, Callable[[], object]]] = [
        ("jobs(): all jobs, as records", 1, all_jobs),
        ("the squeue below it, unread", 1, lambda: raw(*squeue.argv(separator)[2:])),
        ("reading its answer", 1, lambda: squeue.parse(answer.stdout, separator)),
        ("squeue, as people type it", 1, raw),
        ("squeue --json, unread", 1, lambda: raw("--json")),
        (f"squeue for each job (x{scale:.0f})", scale, poll),
    ]
    times = _interleaved(ways, rounds)
    requests = _requests(cluster, all_jobs), _requests(cluster, poll) * scale
    _report(jobs, ways, times)
    print(
        f"\nRequests to the controller in a round: jobs() {requests[0]:.0f},"
        f" each job by itself {requests[1]:.0f}."
    )


def _held(number: int) -> Submission:
    script = "#!/bin/sh\n#SBATCH --output=/dev/null\nsleep 1\n"
    options = ("--hold", "--time=5", f"--comment=hpcplat:{number:08}", "--gres=gpu:1")
    return Submission(script, "/tmp", options)


def _interleaved(
    ways: list[tuple[str, float, Callable[[], object]]], rounds: int
) -> list[list[float]]:
    """Time the ways in turn, so that a busy moment of the machine hits them alike."""
    times: list[list[float]] = [[] for _ in ways]
    for _ in range(rounds):
        for taken, (_, scale, ask) in zip(times, ways, strict=True):
            began = time.perf_counter()
            ask()
            taken.append((time.perf_counter() - began) * scale)
    return times


def _requests(cluster: Cluster, ask: Callable[[], object]) -> float:
    """Count REQUEST_JOB_INFO messages by sdiag, before and after."""
    before = _job_info(cluster)
    ask()
    return _job_info(cluster) - before


def _job_info(cluster: Cluster) -> float:
    total = 0
    for line in cluster.run("sdiag").stdout.splitlines():
        if line.strip().startswith("REQUEST_JOB_INFO"):
            total += int(line.split("count:")[1].split()[0])
    return total


def _report(
    jobs: int,
    ways: list[tuple[str, float, Callable[[], object]]],
    times: list[list[float]],
) -> None:
    base = statistics.median(times[0])
    print(f"\n{jobs} jobs in the queue; medians of {len(times[0])} rounds in turn.\n")
    print(f"| {'way':34} | {'median':>10} | {'spread':>17} | against jobs() |")
    print(f"|{'-' * 36}|{'-' * 12}|{'-' * 19}|{'-' * 16}|")
    for (name, _, _), taken in zip(ways, times, strict=True):
        middle = statistics.median(taken)
        spread = f"{min(taken) * 1000:.0f} to {max(taken) * 1000:.0f} ms"
        print(
            f"| {name:34} | {middle * 1000:7.0f} ms | {spread:>17} |"
            f" {middle / base:13.2f}x |"
        )


if __name__ == "__main__":
    main()
