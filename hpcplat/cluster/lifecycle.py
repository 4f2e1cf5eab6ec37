"""Bringing a cluster up, finding one, and taking down what is left of one."""

from __future__ import annotations

import os
import pwd
import socket
import tempfile
from pathlib import Path

from hpcplat.cluster import packages, record, startup
from hpcplat.cluster.cluster import Cluster
from hpcplat.cluster.configuration import Layout
from hpcplat.cluster.folder import ClusterFolder
from hpcplat.cluster.lock import locked
from hpcplat.cluster.place import ChangeRoot, Host, Place, slurm_version
from hpcplat.cluster.ports import hold_block
from hpcplat.cluster.residents import end_residents
from hpcplat.cluster.spec import ClusterSpec
from hpcplat.cluster.teardown import remove_empty_parents, take_down
from hpcplat.errors import ConflictError, InvalidError, NotFoundError, UnavailableError


def up(spec: ClusterSpec) -> Cluster:
    """Bring the cluster up and return it once jobs can run on every node.

    A cluster that is up as asked stays as it is; only nodes that are dead come back.
    What was half started is taken down again before an error leaves this function,
    also on Ctrl-C. Raises InvalidError, ConflictError (the folder is taken) or
    UnavailableError.
    """
    folder, place = ClusterFolder(spec.folder), place_of(spec)
    folder.refuse_too_long([node.name for node in spec.nodes])
    packages.require(place)
    _require_host_name()
    _make_parent(folder.path)
    user = _user_name()
    _require_reachable(folder.path, user)
    try:
        with locked(folder.lock):
            existing = _load(folder)
            if existing:
                _complete(existing, spec)
                return existing
            _require_free(folder)
            return _make(spec, place, user)
    finally:
        remove_empty_parents(folder)  # of one that could not be made


def find(folder: Path) -> Cluster:
    """Return the cluster in this folder, up or half dead; raises NotFoundError."""
    cluster = _load(ClusterFolder(folder))
    if cluster is None:
        raise NotFoundError(
            f"No cluster is in {folder}.", "Bring one up with hpcplat cluster up."
        )
    return cluster


def down(folder: Path) -> bool:
    """Take down whatever is left of the cluster in this folder.

    Returns whether there was anything. Raises ConflictError for a folder that holds
    something else: that is never removed.
    """
    where = ClusterFolder(folder)
    with locked(where.lock):
        was_there = where.record.exists()
        if not was_there:
            _require_free(where)
        end_residents(where.slurm_conf)
        take_down(where)
    remove_empty_parents(where)
    return was_there


def place_of(spec: ClusterSpec) -> Place:
    """Return where this cluster's programs run."""
    path = os.environ.get("PATH", os.defpath)
    if spec.root is None:
        return Host(path)
    # Job scripts and their output often lie in the temporary folder.
    shared = [Path(tempfile.gettempdir())]
    if not spec.folder.is_relative_to(shared[0]):
        shared.append(spec.folder)
    return ChangeRoot(spec.root, tuple(shared), path)


def _load(folder: ClusterFolder) -> Cluster | None:
    layout = record.read(folder)
    return Cluster(layout, place_of(layout.spec)) if layout else None


def _complete(existing: Cluster, spec: ClusterSpec) -> None:
    remedy = f"Take it down first (hpcplat cluster down --folder {spec.folder})."
    report = existing.status()
    if dead := [name for name, pid in report.services.items() if pid is None]:
        raise ConflictError(
            f"The cluster in {spec.folder} is half dead: {', '.join(dead)} "
            f"{'does' if len(dead) == 1 else 'do'} not run.",
            remedy,
        )
    if existing.spec != spec:
        raise ConflictError(
            f"The cluster in {spec.folder} is up with other settings.", remedy
        )
    for node in report.dead:
        existing.revive_node(node)


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError as error:
        raise InvalidError(
            f"The user id {os.geteuid()} has no name, and Slurm knows users by name.",
            "Add a line for it to /etc/passwd.",
        ) from error


def _make_parent(folder: Path) -> None:
    try:
        for parent in reversed(folder.parents):
            if not parent.is_dir():
                parent.mkdir(exist_ok=True)
                parent.chmod(0o755)  # whatever the umask: see _require_reachable
    except OSError as error:
        raise InvalidError(
            f"{folder.parent} cannot be made: {error.strerror}.",
            "Choose another folder (--folder).",
        ) from error


def _require_free(folder: ClusterFolder) -> None:
    if folder.path.exists() and not folder.is_unused():
        raise ConflictError(
            f"{folder.path} holds something that is no cluster.",
            "Choose another folder (--folder), or empty this one.",
        )


def _require_host_name() -> None:
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None, socket.AF_INET)
    except OSError as error:
        raise UnavailableError(
            f"This machine's own name, {name!r}, has no address.",
            f"Add the line '127.0.0.1 {name}' to /etc/hosts.",
        ) from error


def _make(spec: ClusterSpec, place: Place, user: str) -> Cluster:
    folder, version = ClusterFolder(spec.folder), slurm_version(place)
    with hold_block() as ports:
        layout = Layout(spec, folder, ports, user, version)
        try:
            return _start(layout, place)
        except BaseException:  # Ctrl-C too: nothing half started may stay
            take_down(folder)
            raise


def _start(layout: Layout, place: Place) -> Cluster:
    folder = layout.folder.path
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)  # munged's socket must be reachable for jobs' users
    record.write(layout)
    startup.lay_out(layout, place)
    startup.start_all(layout, place)
    cluster = Cluster(layout, place)
    cluster.await_nodes([node.name for node in layout.spec.nodes])
    return cluster


def _require_reachable(folder: Path, user: str) -> None:
    """As root, MariaDB and the jobs run as others, who must get to their files."""
    if user != "root":
        return
    for parent in folder.parents:
        if not parent.stat().st_mode & 0o001:
            raise InvalidError(
                f"The folder {folder} is closed to other users: {parent} has mode "
                f"{parent.stat().st_mode & 0o777:o}.",
                "Choose one that MariaDB's and the jobs' users can enter (--folder).",
            )
