"""`hpcplat data stage|evict`: the step of a batch script before training."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from hpcplat.allocation import rank_placement
from hpcplat.datasets.store import locate
from hpcplat.errors import NotFoundError
from storage import staging
from storage.cli.options import Root, Version
from storage.cli.progress import Update, shown
from storage.staging_events import StagingEvents

Local = Annotated[
    Path | None,
    typer.Option(help="Folder on the node's own disk; your own in $TMPDIR."),
]
Size = Annotated[float, typer.Option(min=0, help="GiB that staged versions may take.")]
Days = Annotated[float, typer.Option(min=0, help="Days since the last use.")]


def stage(
    version: Version,
    root: Root = None,
    local: Local = None,
    size: Size = 500,
    days: Days = 14,
    threads: Annotated[int, typer.Option(min=1, show_default="one a core")] = (
        os.cpu_count() or 1
    ),
) -> None:
    """Copy a version to this node's disk, every byte checked; print its folder.

    All ranks of a node may call it: one copies, the others wait. Inside a job of
    hpcplat the progress goes to the job's events.
    """
    limits = staging.Limits(int(size * 2**30), days * 86_400)
    source = locate(version, root)
    with shown(f"stage {version}") as bar, _told(version) as tell:
        found = staging.stage(source, _local(local), limits, threads, _both(bar, tell))
    print(found)


def evict(local: Local = None, size: Size = 500, days: Days = 14) -> None:
    """Remove staged versions that are old, or the oldest if they take too much."""
    limits = staging.Limits(int(size * 2**30), days * 86_400)
    for digest in staging.evict(_local(local), limits):
        print(digest)


def _local(given: Path | None) -> Path:
    return given or staging.own_folder(Path(tempfile.gettempdir()))


def _both(first: Update, second: Update) -> Update:
    def update(done: int, total: int) -> None:
        first(done, total)
        second(done, total)

    return update


@contextmanager
def _told(version: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that writes progress to the job's events, if this is a job."""
    try:
        place = rank_placement()
    except NotFoundError:
        yield lambda done, total: None
        return
    yield StagingEvents(version, place.run_folder, place.attempt)
