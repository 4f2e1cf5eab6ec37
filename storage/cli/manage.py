"""`hpcplat data verify|tag|rm`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from hpcplat.datasets.damage import DamagedError
from hpcplat.datasets.names import SHORT
from hpcplat.datasets.store import Store, locate
from hpcplat.quantities import counted
from storage import managing, verifying
from storage.cli.options import Root, Version
from storage.cli.progress import shown


def verify(
    version: Annotated[str, typer.Argument(help="A dataset's version, or a folder.")],
    root: Root = None,
    threads: Annotated[
        int, typer.Option(min=1, help="Files at once.", show_default="one a core")
    ] = (os.cpu_count() or 1),
) -> None:
    """Read every byte of a version and compare it with what was written."""
    folder = locate(version, root)
    with shown("verify") as progress:
        faults = verifying.verify(folder, threads, progress)
    for fault in faults:
        print(fault)
    if faults:
        raise DamagedError(
            f"{len(faults)} files of {version} are not what was written.",
            "Restore them from a copy, or ingest again.",
        )
    count = sum(1 for path in Path(folder).rglob("*") if path.is_file())
    print(f"{version}: {counted(count, 'file')}, every byte as written")


def tag(
    version: Version,
    name: Annotated[str, typer.Argument(help="The tag, such as v1.")],
    root: Root = None,
    *,
    remove: Annotated[bool, typer.Option("--remove", help="Take it away.")] = False,
) -> None:
    """Let a tag stand for a version."""
    store = Store(root)
    if remove:
        managing.untag(store, version, name)
        print(f"{version}: no tag {name} any more")
        return
    digest = managing.tag(store, version, name)
    print(f"{name}: {digest[:SHORT]}")


def remove(
    version: Version,
    root: Root = None,
    *,
    all_versions: Annotated[
        bool, typer.Option("--all", help="The dataset with all its versions.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Even if it is tagged or being read.")
    ] = False,
) -> None:
    """Remove a version; what other versions share stays theirs."""
    store = Store(root)
    if all_versions:
        count = managing.remove_all(store, version, force=force)
        print(f"{version}: {count} versions removed")
        return
    digest = managing.remove(store, version, force=force)
    print(f"{version}: {digest[:SHORT]} removed")
