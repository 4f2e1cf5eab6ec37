"""`hpcplat top`: the queue, the GPUs and the progress of running jobs, live."""

from __future__ import annotations

import select
import shutil
import sys
import termios
import time
import tty
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from hpcplat.cli.jobs import STATES, elapsed, with_short_ids
from hpcplat.cli.nodes import busy_gpus, live_jobs, use_of
from hpcplat.cli.progress import Progress, progress_of, steps_of
from hpcplat.cli.session import AsJson, print_json, service
from hpcplat.cli.tables import Column, Row, cut, is_terminal, table, wants_colour
from hpcplat.cli.times import age, clock, moment
from hpcplat.client import Client
from hpcplat.errors import HpcplatError, UnavailableError

app = typer.Typer()

LIVE: Final = STATES[:5]
MOST: Final = 1000
PROGRESS_FOR: Final = 50  # running jobs whose folders are looked at
BAR: Final = 10  # characters of a progress bar

COLUMNS: Final = (
    Column("ID", lambda row: row["short"]),
    Column("NAME", lambda row: row["name"], shrinks=True),
    Column("USER", lambda row: row["user"], rank=6),
    Column("STATE", lambda row: row["state"], coloured=True),
    Column("GPUS", lambda row: str(row["gpus"] or ""), rank=5, right=True),
    Column("TIME", lambda row: elapsed(row) or _waits(row), right=True),
    Column("STEP", lambda row: _step(row), rank=1, right=True),
    Column("LOSS", lambda row: _number(row, "loss", ".4g"), rank=2, right=True),
    Column("TOK/S", lambda row: _speed(row), rank=4, right=True),
    Column("LEFT", lambda row: _left(row), rank=3, right=True),
    Column("REASON", lambda row: row["reason"], rank=7, shrinks=True),
)


@app.command()
def top(
    interval: Annotated[
        float, typer.Option("--interval", "-i", min=0.2, help="Seconds between looks.")
    ] = 2.0,
    *,
    once: Annotated[bool, typer.Option("--once", help="Print it once.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the queue, the GPUs in use and how far running jobs are; q ends it."""
    steps: dict[str, int | None] = {}
    if as_json or once or not is_terminal():
        with service() as client:
            look = _look(client, steps)
        if as_json:
            print_json({**look, "jobs": [_plain(job) for job in look["jobs"]]})
        else:
            print("\n".join(screen(look, 200, 10_000, colour=False)))
        return
    with _full_screen():
        for _ in _ticks(interval):
            _draw(_tried(steps))


def _tried(steps: dict[str, int | None]) -> dict[str, Any] | str:
    """Return a look, or why there is none; the next may succeed."""
    try:
        with service() as client:
            return _look(client, steps)
    except UnavailableError as error:
        return str(error)


def _look(client: Client, steps: dict[str, int | None]) -> dict[str, Any]:
    """Ask for all that is shown: jobs with their progress, GPUs."""
    jobs = with_short_ids(client.jobs(limit=MOST, state=LIVE))
    order = {"RUNNING": 0, "SUSPENDED": 1}
    jobs.sort(key=lambda job: (order.get(job["state"], 2), job["created_at"]))
    nodes = client.nodes()
    used = use_of(live_jobs())
    return {
        "cluster": nodes["cluster"],
        "gpus": sum(sum(node["gpus"].values()) for node in nodes["nodes"]),
        "gpus_used": sum(busy_gpus(node, used) for node in nodes["nodes"]),
        "nodes": len(nodes["nodes"]),
        "jobs": [_with_progress(client, job, steps) for job in jobs[:PROGRESS_FOR]]
        + jobs[PROGRESS_FOR:],
    }


def _with_progress(client: Client, job: Row, steps: dict[str, int | None]) -> Row:
    if job["state"] != "RUNNING" or job["kind"] == "sbatch":
        return job
    if job["id"] not in steps:
        steps[job["id"]] = steps_of(client.job(job["id"])["spec"])
    return {**job, "progress": progress_of(Path(job["folder"]), steps[job["id"]])}


def screen(
    look: Mapping[str, Any], width: int, height: int, *, colour: bool
) -> list[str]:
    """Return the lines of one screen."""
    jobs = look["jobs"]
    running = sum(job["state"] == "RUNNING" for job in jobs)
    head = (
        f"hpcplat {look['cluster']}  {datetime.now().astimezone():%H:%M:%S}  "
        f"{look['gpus_used']}/{look['gpus']} GPUs {bar(look)}  "
        f"{running} running, {len(jobs) - running} waiting"
    )
    lines = [cut(head, width), ""]
    if not jobs:
        return [*lines, "No job runs or waits."]
    room = max(1, height - len(lines) - 2)
    lines += table(jobs[:room], COLUMNS, width, colour).splitlines()
    if len(jobs) > room:
        lines.append(f"… and {len(jobs) - room} more")
    return lines


def bar(look: Mapping[str, Any]) -> str:
    """Return how many of the GPUs are in use, as a bar."""
    share = look["gpus_used"] / look["gpus"] if look["gpus"] else 0
    full = round(share * BAR)
    return "█" * full + "░" * (BAR - full)


def _draw(look: Mapping[str, Any] | str) -> None:
    width, height = shutil.get_terminal_size((80, 24))
    if isinstance(look, str):
        lines = [cut(f"{look} Trying on; q ends.", width)]
    else:
        lines = screen(look, width, height, colour=wants_colour())
    text = "".join(f"{line}\x1b[K\r\n" for line in lines[: height - 1])
    sys.stdout.write(f"\x1b[H{text}\x1b[J")
    sys.stdout.flush()


@contextmanager
def _full_screen() -> Iterator[None]:
    """Use the terminal's second screen, and leave the first as it was."""
    if not sys.stdin.isatty():
        raise HpcplatError("top needs a terminal to read from.", "Use --once.")
    before = termios.tcgetattr(sys.stdin)
    sys.stdout.write("\x1b[?1049h\x1b[?25l")
    try:
        tty.setcbreak(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
        sys.stdout.write("\x1b[?25h\x1b[?1049l")
        sys.stdout.flush()


def _ticks(interval: float) -> Iterator[None]:
    """Yield at each interval, until q or Ctrl-C."""
    try:
        while True:
            start = time.monotonic()
            yield
            if _quits(max(0.0, interval - (time.monotonic() - start))):
                return
    except KeyboardInterrupt:
        return


def _quits(seconds: float) -> bool:
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return bool(ready) and sys.stdin.read(1) in "qQ\x04"


def _progress(row: Row) -> Progress | None:
    found: Progress | None = row.get("progress")
    return found


def _step(row: Row) -> str:
    progress = _progress(row)
    if progress is None:
        return ""
    if progress.share is None:
        return str(progress.step)
    return f"{progress.step}/{progress.steps} {progress.share:.0%}"


def _number(row: Row, name: str, spelling: str) -> str:
    value = getattr(_progress(row), name, None)
    return "" if value is None else format(value, spelling)


def _speed(row: Row) -> str:
    progress = _progress(row)
    speed = progress.tokens_per_second if progress else None
    if speed is None:
        return ""
    return f"{speed / 1000:.1f}k" if speed >= 10_000 else f"{speed:.0f}"


def _left(row: Row) -> str:
    progress = _progress(row)
    return clock(progress.left) if progress and progress.left is not None else ""


def _waits(row: Row) -> str:
    return age(moment(row["created_at"]))


def _plain(job: Row) -> dict[str, Any]:
    progress = _progress(job)
    values = dict(job)
    values["progress"] = progress and {
        "step": progress.step,
        "steps": progress.steps,
        "loss": progress.loss,
        "tokens_per_second": progress.tokens_per_second,
        "seconds_left": progress.left.total_seconds() if progress.left else None,
    }
    return values
