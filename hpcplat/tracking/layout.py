"""Where metrics lie in a run folder.

``metrics/attempt-A/SOURCE.K.jsonl``: the source is ``main`` (the run's own curve),
``rank-R`` or ``node-NAME``; K counts the writers that the source had in this attempt (a
rank that was started again, a fork). ``metrics/media/``: images and figures, named by their content.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MAIN = "main"
_NAME = re.compile(r"(?P<source>.+)\.(?P<number>\d+)\.jsonl")


class MetricsFile(NamedTuple):
    """A metrics file's place: attempt, source and the writer's number, from 0."""

    attempt: int
    source: str
    number: int
    path: Path


def metrics_folder(run: Path) -> Path:
    """Return the folder of all metrics of a run."""
    return run / "metrics"


def media_folder(run: Path) -> Path:
    """Return the folder of images and figures."""
    return metrics_folder(run) / "media"


def attempt_folder(run: Path, attempt: int) -> Path:
    """Return the folder of one attempt's metrics."""
    return metrics_folder(run) / f"attempt-{attempt}"


def metrics_files(run: Path) -> list[MetricsFile]:
    """Return the metrics files there are, by attempt, source and number."""
    return sorted(_found(run))


def _found(run: Path) -> Iterator[MetricsFile]:
    # Thousands of run folders are looked at every second: no glob here.
    metrics = metrics_folder(run)
    for folder in _names(metrics):
        attempt = folder.removeprefix("attempt-")
        if attempt == folder or not attempt.isdecimal():
            continue
        for name in _names(metrics / folder):
            if match := _NAME.fullmatch(name):
                number = int(match["number"])
                path = metrics / folder / name
                yield MetricsFile(int(attempt), match["source"], number, path)


def _names(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries]
    except (FileNotFoundError, NotADirectoryError):
        return []


def create_next(run: Path, attempt: int, source: str) -> int:
    """Create the next metrics file of a source; return its descriptor, to append.

    Nobody else ever gets the same file. OSError if the run folder is gone or full.
    """
    folder = attempt_folder(run, attempt)
    metrics_folder(run).mkdir(exist_ok=True)  # not the run folder: it is there, or lost
    folder.mkdir(exist_ok=True)
    number = sum(1 for _ in folder.glob(f"{source}.*.jsonl"))
    while True:
        try:
            return os.open(
                folder / f"{source}.{number}.jsonl",
                os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC,
                0o644,
            )
        except FileExistsError:
            number += 1
