"""Taking a cluster down: no process and no file stays."""

from __future__ import annotations

import contextlib
import shutil
import signal
import threading
from collections.abc import Iterator
from functools import partial

from hpcplat.cluster import census
from hpcplat.cluster.folder import ClusterFolder
from hpcplat.cluster.spec import default_folder


def take_down(folder: ClusterFolder) -> None:
    """Kill every process of the cluster in the folder, then remove the folder.

    Nothing is asked to end: what the cluster holds is thrown away, and a job gets
    what a power cut would do to it. A second Ctrl-C does not stop it half-way.
    """
    with _undisturbed():
        census.kill_all(partial(census.members, folder.path))
        if folder.path.exists():
            _remove(folder)


def _remove(folder: ClusterFolder) -> None:
    """Remove the record last: killed half-way, the rest is still known as a cluster's."""
    for part in folder.path.iterdir():
        if part.is_dir():
            shutil.rmtree(part)
        elif part != folder.record:
            part.unlink()
    folder.record.unlink(missing_ok=True)
    folder.path.rmdir()


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Ignore Ctrl-C meanwhile; only the main thread hears it, and may say so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def remove_empty_parents(folder: ClusterFolder) -> None:
    """Remove what default_folder was made in, once no cluster and no lock is there."""
    home = default_folder("any").parent
    if folder.path.parent == home:
        with contextlib.suppress(OSError):  # another cluster's folder is in it
            home.rmdir()
            home.parent.rmdir()
