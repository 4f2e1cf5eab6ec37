"""Tracking beside Aim's own: `python -m tests.benchmarks.tracking [PART …]` prints a table.

Parts: log, collect, see, many, list; without one all of them.
What is compared runs in turns in one process, so that both see the same machine.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import aim
import httpx
import psutil
from sqlmodel import select

from hpcplat.cli.runs import with_progress
from hpcplat.client import Client
from hpcplat.embedding import EmbeddedTransport
from hpcplat.tracking import MetricsWriter
from hpcplat.tracking.aimlink import aim_run_hash
from hpcplat.tracking.layout import attempt_folder
from hpcplat.tracking.record import Numbers, encode
from server.aimui.process import AimUi, end_group
from server.app import create_app
from server.collector.catalogue import TrackedRun
from server.collector.collector import Collector
from server.database import Database
from server.queries import jobs
from server.queries.jobs import NewJob
from server.service import Service
from server.tables import Job
from tests.server.fakes import FakeSlurm

NAMES = ("loss", "lr", "grad_norm", "tokens_per_second", "step_seconds")
ROUNDS = 7
STEPS = 400
RUNS = 1000
POINTS = 200_000
SPEC = {"name": "x", "resources": {"nodes": 1, "time": "1h"}, "command": ["true"]}


class Row(NamedTuple):
    """What was measured: the value, what it is held against, and the ratio asked for."""

    what: str
    value: str
    beside: str = ""
    asked: str = ""


def main() -> None:
    """Measure in a folder of its own, and print the table."""
    folder = Path(tempfile.mkdtemp(prefix="hpcplat-bench-"))
    try:
        for row in measured(folder, sys.argv[1:]):
            print(f"| {' | '.join(row)} |", flush=True)
    finally:
        shutil.rmtree(folder)


def measured(folder: Path, parts: Sequence[str]) -> Iterator[Row]:
    """Yield the rows of the parts (none: of all), headings first."""
    yield Row("what", "hpcplat", "beside it", "asked for")
    yield Row("---", "---:", "---:", "---")
    every = {
        "log": logging,
        "collect": collecting,
        "see": seeing,
        "many": many_runs,
        "list": listing,
    }
    for part in parts or every:
        yield from every[part](folder / part)


def logging(folder: Path) -> Iterator[Row]:
    """Time a metric takes in the training process."""
    run = folder / "run"
    run.mkdir(parents=True)
    writer = MetricsWriter(run)
    tracked = _aim_run(folder / "aim")
    values = {name: 0.1234567 + number for number, name in enumerate(NAMES)}

    def ours(step: int) -> None:
        writer.log(values, step)

    def theirs(step: int) -> None:
        for name, value in values.items():
            tracked.track(value, name=name, step=step)

    for title, pause in (("in a tight loop", 0.0), ("a step every 3 ms", 0.003)):
        mine, aims = in_turns(ours, theirs, pause)
        yield Row(
            f"log(), a metric, {title}",
            f"{mine:.2f} us",
            f"Aim's track: {aims:.1f} us, {aims / mine:.0f} x",
            "<= 20 us, >= 5 x",
        )
    writer.close()
    tracked.close()


def in_turns(
    ours: Callable[[int], None], theirs: Callable[[int], None], pause: float
) -> tuple[float, float]:
    """Return the median microseconds of a metric for each, measured in turns."""
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(ROUNDS):
        for action, found in zip((ours, theirs), times, strict=True):
            found.append(_metric_time(action, number * STEPS, pause))
    return statistics.median(times[0]), statistics.median(times[1])


def _metric_time(action: Callable[[int], None], first: int, pause: float) -> float:
    spent = 0.0
    for step in range(first, first + STEPS):
        begin = time.perf_counter()
        action(step)
        spent += time.perf_counter() - begin
        if pause:
            time.sleep(pause)
    return spent / STEPS / len(NAMES) * 1e6


class Listed:
    """A catalogue of what it was given."""

    def __init__(self, *folders: Path) -> None:
        self.folders = folders

    def runs(self, since: datetime) -> Iterator[TrackedRun]:
        """Return all."""
        created = datetime.now(UTC)
        for folder in self.folders:
            yield TrackedRun(
                folder.name, "team", folder.name, "RUNNING", folder, created
            )


def collecting(folder: Path) -> Iterator[Row]:
    """Points a second from run folders to Aim."""
    steps = POINTS // len(NAMES)
    fill(folder / "run", steps)
    aim.Repo(_made(folder / "aim" / "team"), init=True)
    collector = Collector(Listed(folder / "run"), folder / "aim")
    begin = time.perf_counter()
    collector.look()
    ours = POINTS / (time.perf_counter() - begin)
    collector.close()
    tracked = _aim_run(folder / "theirs")
    begin = time.perf_counter()
    for step in range(2000):
        for name in NAMES:
            tracked.track(0.5, name=name, step=step)
    theirs = 2000 * len(NAMES) / (time.perf_counter() - begin)
    tracked.close()
    yield Row(
        f"collector, {POINTS:,} points of one run",
        f"{ours:,.0f} points/s",
        f"Aim's track: {theirs:,.0f}, {ours / theirs:.1f} x",
        ">= 20,000 points/s",
    )


def seeing(folder: Path) -> Iterator[Row]:
    """Seconds from log() to Aim's REST answer, through collector and UI."""
    runs = folder / "runs"
    writer = MetricsWriter(_path(runs / "live"))
    writer.log({"loss": 0.0}, step=0)
    writer.flush()
    words = ["-I", "-m", "server.collector", "--aim", str(folder / "aim")]
    process = subprocess.Popen(
        [sys.executable, *words, "--folders", str(runs)], start_new_session=True
    )
    repository = folder / "aim" / "local"
    while not (repository / ".aim" / "VERSION").exists():
        time.sleep(0.1)
    ui = AimUi(repository, "/aim")
    try:
        ui.ensure()
        delays = [_delay(writer, ui, step) for step in range(1, 11)]
    finally:
        ui.close()
        end_group(process)
        writer.close()
    yield Row(
        "log() to visible in the UI",
        f"{statistics.median(delays):.1f} s median, {max(delays):.1f} s most",
        "",
        "<= 5 s",
    )


def _delay(writer: MetricsWriter, ui: AimUi, step: int) -> float:
    """Log a value and ask until it is the run's last one."""
    body = [{"name": "loss", "context": {}}]
    path = f"/aim/api/runs/{aim_run_hash('live')}/metric/get-batch/"
    begin = time.perf_counter()
    writer.log({"loss": float(step)}, step=step)
    transport = httpx.HTTPTransport(uds=str(ui.socket))
    with httpx.Client(transport=transport, base_url="http://aim") as client:
        while time.perf_counter() - begin < 60:
            answer = client.post(path, json=body, timeout=60)
            found: list[dict[str, Any]] = answer.json() if answer.is_success else []
            if found and step in found[0]["iters"]:
                break
            time.sleep(0.1)
    return time.perf_counter() - begin


def many_runs(folder: Path) -> Iterator[Row]:
    """A thousand run folders: the collector's memory, and a list of them."""
    runs = folder / "runs"
    for number in range(RUNS):
        fill(runs / f"run-{number:04}", 40)
    words = ["-I", "-m", "server.collector", "--aim", str(folder / "aim")]
    begin = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *words, "--folders", str(runs)], start_new_session=True
    )
    most = 0
    chunks = folder / "aim" / "local" / ".aim" / "seqs" / "chunks"
    while process.poll() is None:
        most = max(most, psutil.Process(process.pid).memory_info().rss)
        if chunks.is_dir() and sum(1 for _ in chunks.iterdir()) == RUNS:
            break
        time.sleep(0.2)
    seconds = time.perf_counter() - begin
    time.sleep(5)
    most = max(most, psutil.Process(process.pid).memory_info().rss)
    end_group(process)
    yield Row(
        f"collector, {RUNS:,} run folders",
        f"{most / 1e6:.0f} MB at most, {seconds:.0f} s to take them all",
        "",
        "bounded",
    )


def listing(folder: Path) -> Iterator[Row]:
    """Time of a list of a thousand runs through the API, with how far each came."""
    runs = [folder / "runs" / f"run-{number:04}" for number in range(RUNS)]
    for run in runs:
        fill(run, 40)
    database = Database(f"sqlite:///{folder}/hpcplat.db")
    database.migrate()
    service = Service(database, FakeSlurm(), runs=str(folder))
    transport = EmbeddedTransport(create_app(service, threads=False), os.geteuid())
    with Client(httpx.Client(base_url="http://t", transport=transport)) as client:
        client.submit(SPEC)
        with database.write() as session:
            like = session.exec(select(Job)).one()
            jobs.create(session, [_job(like, run) for run in runs], datetime.now(UTC))
        times: list[tuple[float, float]] = [_listed(client) for _ in range(ROUNDS)]
    whole, api = (statistics.median(each) for each in zip(*times, strict=True))
    yield Row(
        f"{len(runs):,} runs listed through the API, with step and loss",
        f"{whole:.2f} s",
        f"of it the API's answer: {api:.2f} s",
        "<= 1 s",
    )


def _job(like: Job, run: Path) -> NewJob:
    """Return a job as another one, with a run folder of its own."""
    own = {"id": f"1m8{run.name[-4:]:0>13}", "name": run.name, "folder": str(run)}
    known: dict[str, Any] = {
        f.name: getattr(like, f.name, None) for f in fields(NewJob)
    }
    return NewJob(**{**known, **own, "offsets": (), "idempotency_key": None})


def _listed(client: Client) -> tuple[float, float]:
    """List all as `hpcplat runs ls` does; return the seconds, and those of the API."""
    begin = time.perf_counter()
    found = client.jobs(limit=RUNS)
    answered = time.perf_counter()
    rows = with_progress(found)
    assert len(found) == RUNS
    assert sum(row["step"] is not None for row in rows) == RUNS - 1  # one never ran
    return time.perf_counter() - begin, answered - begin


def fill(run: Path, steps: int) -> None:
    """Write a metrics file of so many steps at once."""
    folder = attempt_folder(run, 1)
    folder.mkdir(parents=True)
    lines = [
        encode(Numbers(1.0 + step, step, dict.fromkeys(NAMES, 1 / (step + 1))))
        for step in range(steps)
    ]
    (folder / "main.0.jsonl").write_bytes(b"".join(lines))


def _aim_run(folder: Path) -> Any:  # noqa: ANN401 - Aim's
    return aim.Run(
        repo=aim.Repo(_made(folder), init=True),
        system_tracking_interval=None,
        log_system_params=False,
        capture_terminal_logs=False,
    )


def _made(folder: Path) -> str:
    return str(_path(folder))


def _path(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


if __name__ == "__main__":
    main()
