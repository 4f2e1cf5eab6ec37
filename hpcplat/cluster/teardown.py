"""Taking a cluster down: no process and no file stays."""

from __future__ import annotations

import contextlib
import shutil
from functools import partial

from hpcplat.cluster import census
from hpcplat.cluster.folder import ClusterFolder
from hpcplat.cluster.spec import default_folder


def take_down(folder: ClusterFolder) -> None:
    """Kill every process of the cluster in the folder, then remove the folder.

    Nothing is asked to end: what the cluster holds is thrown away, and a job gets
    what a power cut would do to it.
    """
    census.kill_all(partial(census.members, folder.path))
    if folder.path.exists():
        shutil.rmtree(folder.path)


def remove_empty_parents(folder: ClusterFolder) -> None:
    """Remove what default_folder was made in, once no cluster and no lock is there."""
    home = default_folder("any").parent
    if folder.path.parent == home:
        with contextlib.suppress(OSError):  # another cluster's folder is in it
            home.rmdir()
            home.parent.rmdir()
