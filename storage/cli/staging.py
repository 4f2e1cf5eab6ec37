"""`hpcplat data stage|evict`: the step of a batch script before training."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from hpcplat.datasets.store import locate
from storage import staging
from storage.cli.options import Root, Version
from storage.cli.progress import shown

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
    threads: Annotated[int, typer.Option(min=1)] = os.cpu_count() or 1,
) -> None:
    """Copy a version to this node's disk, every byte checked; print its folder."""
    limits = staging.Limits(int(size * 2**30), days * 86_400)
    with shown(f"stage {version}") as progress:
        found = staging.stage(
            locate(version, root), _local(local), limits, threads, progress
        )
    print(found)


def evict(local: Local = None, size: Size = 500, days: Days = 14) -> None:
    """Remove staged versions that are old, or the oldest if they take too much."""
    limits = staging.Limits(int(size * 2**30), days * 86_400)
    removed = staging.evict(_local(local), limits)
    for digest in removed:
        print(digest)


def _local(given: Path | None) -> Path:
    return given or Path(tempfile.gettempdir()) / f"hpcplat-staged-{os.getuid()}"
