"""Which processes belong to a cluster, and to which of its nodes."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from hpcplat.cluster.daemons import CLUSTER_MARK, DAEMON_MARK
from hpcplat.cluster.folder import ClusterFolder
from hpcplat.errors import UnavailableError

# Device and inode.
_File = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Member:
    """A living process of the cluster: the daemon it is, or the node it works on."""

    process: psutil.Process
    daemon: str
    node: str


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the census knows of any process of the machine."""

    process: psutil.Process
    parent: int
    name: str
    environment: Mapping[str, str]


def members(folder: Path) -> list[Member]:
    """Return every living process of the cluster in this folder.

    Daemons carry a mark in their environment. A step daemon's environment is
    overwritten by its title, but it holds its node's log open. What jobs run carries
    the node's name and the path of slurm.conf, even after a setsid or when its
    parents are gone. Whatever else descends from one of these belongs to the same
    node. The calling process and its parents are left out.
    """
    seen, ours = _look_around(), _Ours(ClusterFolder(folder))
    known = {
        pid: member for pid, one in seen.items() if (member := ours.recognise(one))
    }
    for pid in _by_age(seen):
        parent = known.get(seen[pid].parent)
        if pid not in known and parent:
            known[pid] = Member(seen[pid].process, "", parent.node)
    callers = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    return [member for pid, member in known.items() if pid not in callers]


def _look_around() -> dict[int, _Seen]:
    seen: dict[int, _Seen] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess), process.oneshot():
            if process.status() != psutil.STATUS_ZOMBIE:
                seen[process.pid] = _Seen(
                    process, process.ppid(), process.name(), _environment(process)
                )
    return seen


def _environment(process: psutil.Process) -> Mapping[str, str]:
    try:
        return process.environ()
    except (psutil.AccessDenied, psutil.ZombieProcess, OSError):
        return {}  # another user's: not a process of a cluster that we may touch


def _by_age(seen: Mapping[int, _Seen]) -> list[int]:
    """Parents before children, so that descent is found in one pass."""
    return sorted(seen, key=lambda pid: seen[pid].process.create_time())


class _Ours:
    """By what a process of one cluster is known."""

    def __init__(self, folder: ClusterFolder) -> None:
        self._folder = str(folder.path)
        self._conf = str(folder.slurm_conf)
        self._logs = _node_logs(folder)

    def recognise(self, one: _Seen) -> Member | None:
        """Return the member that this process is by itself, whoever its parent is."""
        daemon = one.environment.get(DAEMON_MARK, "")
        if daemon and one.environment.get(CLUSTER_MARK) == self._folder:
            return Member(one.process, daemon, _node_of(daemon))
        if one.name == "slurmstepd":
            node = _node_in_use(one.process, self._logs)
            return Member(one.process, "", node) if node else None
        if one.environment.get("SLURM_CONF") != self._conf:
            return None
        node = one.environment.get("SLURMD_NODENAME", "")
        # An srun from outside a job is on no node, but lives for the cluster alone.
        return Member(one.process, "", node) if node or one.name == "srun" else None


def _node_of(daemon: str) -> str:
    return daemon.removeprefix("slurmd-") if daemon.startswith("slurmd-") else ""


def _node_in_use(process: psutil.Process, logs: Mapping[_File, str]) -> str:
    """Return the node whose log this step daemon writes, if it is one of ours."""
    with contextlib.suppress(OSError):
        for handle in Path("/proc", str(process.pid), "fd").iterdir():
            with contextlib.suppress(OSError):
                if node := logs.get(_identity(handle)):
                    return node
    return ""


def _node_logs(folder: ClusterFolder) -> dict[_File, str]:
    """Return the nodes' logs as files, not paths: those differ in a change-root."""
    return {
        _identity(path): _node_of(path.stem)
        for path in folder.logs.glob("slurmd-*.log")
    }


def _identity(path: Path) -> _File:
    status = path.stat()
    return status.st_dev, status.st_ino


def kill_all(census: Callable[[], list[Member]], limit: float = 20.0) -> int:
    """Send SIGKILL until the census finds nobody; return how many were killed.

    Daemons first: they start what would have to be killed next. ``limit`` is in
    seconds; raises UnavailableError naming the processes that would not die.
    """
    end = time.monotonic() + limit
    killed: set[psutil.Process] = set()
    while living := census():
        for member in sorted(living, key=lambda member: not member.daemon):
            killed.add(member.process)
            with contextlib.suppress(psutil.NoSuchProcess):  # died with its parent
                member.process.kill()
        if time.monotonic() > end:
            pids = ", ".join(str(member.process.pid) for member in living)
            raise UnavailableError(
                f"Processes {pids} could not be killed.",
                "See what they wait for (cat /proc/PID/stack), then try again.",
            )
        time.sleep(0.02)
    for process in killed:
        _reap(process.pid)
    return len(killed)


def _reap(pid: int) -> None:
    """Leave no zombie where the process was our own child."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
