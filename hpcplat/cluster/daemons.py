"""The daemons of a cluster: their arguments, their start, and what their logs say."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hpcplat.cluster.configuration import ADDRESS, Layout
from hpcplat.cluster.place import PATH, Place
from hpcplat.errors import UnavailableError

# In the environment of every daemon: which cluster it belongs to and what it is. The
# census finds them by it, so that no pid file can mislead.
CLUSTER_MARK = "HPCPLAT_CLUSTER"
DAEMON_MARK = "HPCPLAT_DAEMON"


@dataclass(frozen=True, slots=True)
class Daemon:
    """A program that stays in the foreground until it is killed."""

    name: str
    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


def munged(layout: Layout) -> Daemon:
    """Tell who is who among the Slurm programs."""
    folder = layout.folder
    files = {
        "key-file": folder.munge_key,
        "socket": folder.munge_socket,
        "pid-file": folder.munge / "pid",
        "seed-file": folder.keys / "munge.seed",
    }
    options = [f"--{name}={path}" for name, path in files.items()]
    # --force: the folder may lie below one that others can write to, such as /tmp.
    return Daemon("munged", ["munged", "--foreground", "--force", *options])


def mariadbd(layout: Layout, mariadb_user: str) -> Daemon:
    """Keep the accounting records; reached by its Unix socket alone."""
    folder = layout.folder
    options = [
        "--no-defaults",
        f"--datadir={folder.database}",
        f"--tmpdir={folder.database_temporary}",
        f"--socket={folder.database_socket}",
        f"--pid-file={folder.database}/pid",
        f"--user={mariadb_user}",
        f"--init-file={folder.database_setup}",
        "--skip-networking",
        "--innodb-buffer-pool-size=64M",
        # What slurmdbd asks for; and records that need not outlive a power cut.
        "--innodb-lock-wait-timeout=900",
        "--innodb-flush-log-at-trx-commit=0",
    ]
    return Daemon("mariadbd", ["mariadbd", *options])


def slurmdbd(layout: Layout) -> Daemon:
    """Stand between Slurm and the accounting database."""
    return Daemon(
        "slurmdbd",
        ["slurmdbd", "-D"],
        # It finds its own file beside slurm.conf, and MariaDB by its client library.
        {
            "SLURM_CONF": str(layout.folder.slurm_conf),
            "MYSQL_UNIX_PORT": str(layout.folder.database_socket),
        },
    )


def slurmctld(layout: Layout) -> Daemon:
    """Schedule."""
    return Daemon("slurmctld", ["slurmctld", "-D", "-f", str(layout.folder.slurm_conf)])


def slurmd(layout: Layout, node: str) -> Daemon:
    """Be the node of this name."""
    conf = str(layout.folder.slurm_conf)
    return Daemon(f"slurmd-{node}", ["slurmd", "-D", "-N", node, "-f", conf])


def slurmrestd(layout: Layout) -> Daemon:
    """Serve Slurm's REST API to those who bring a token.

    It refuses to run as root or as SlurmUser. As root it is handed to another; an
    ordinary user has no other to hand it to, so there the check is switched off by
    Slurm's own means: it serves that one user, and can do what that user can.
    """
    listen = f"{ADDRESS}:{layout.ports.slurmrestd}"
    start = ["slurmrestd", "-f", str(layout.folder.slurm_conf), "-a", "rest_auth/jwt"]
    # Without SLURM_JWT in its own environment it takes no token; the value is unused.
    takes_tokens = {"SLURM_JWT": "daemon"}
    if layout.user == "root":
        # Not nobody: from 26.05 on Slurm takes that for "no user at all".
        identity = ["-u", "daemon", "-g", "daemon"]
        return Daemon("slurmrestd", [*start, *identity, listen], takes_tokens)
    unchecked = {"SLURMRESTD_SECURITY": "disable_user_check"}
    return Daemon("slurmrestd", [*start, listen], {**takes_tokens, **unchecked})


def start(daemon: Daemon, layout: Layout, place: Place) -> int:
    """Start it in a session of its own, its output in its log; return its pid.

    The environment is a small one: what leaks from a job around us (SLURM_*) would
    mislead a daemon and, through slurmd, every job.
    """
    argv = place.command(daemon.argv)
    environment = {
        "PATH": PATH,
        "LANG": "C.UTF-8",
        CLUSTER_MARK: str(layout.folder.path),
        DAEMON_MARK: daemon.name,
        **daemon.environment,
    }
    log = os.fspath(layout.folder.log(daemon.name + ".out"))
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    # posix_spawn, not subprocess: the daemon outlives us and nobody waits for it.
    return os.posix_spawn(
        argv[0],
        argv,
        environment,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, append, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )


def wait_for(
    ready: Callable[[], bool],
    pid: int,
    daemon: Daemon,
    layout: Layout,
    limit: float = 60,
) -> None:
    """Wait until ``ready()``; raise UnavailableError when the daemon ends before.

    ``limit`` is in seconds. The error carries the last lines of the daemon's log.
    """
    end = time.monotonic() + limit
    while not ready():
        if has_ended(pid):
            raise UnavailableError(_tale("ended at once", daemon.name, layout))
        if time.monotonic() > end:
            raise UnavailableError(
                _tale(f"was not ready within {limit:g} s", daemon.name, layout)
            )
        time.sleep(0.02)


def has_ended(pid: int) -> bool:
    """Whether the process has ended; our own child is reaped on the way."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return not Path("/proc", str(pid)).exists()


def _tale(what: str, daemon: str, layout: Layout) -> str:
    lines = log_tail(layout, daemon)
    return "\n  ".join([f"{daemon} {what}. The end of its log:", *lines])


def log_tail(layout: Layout, daemon: str, count: int = 8) -> list[str]:
    """Return the last lines of the daemon's log and of what it printed."""
    folder = layout.folder
    texts = [
        path.read_text(errors="replace").strip()
        for path in (folder.log(daemon), folder.log(daemon + ".out"))
        if path.exists()
    ]
    return [line for text in texts for line in text.splitlines()[-count:]]
