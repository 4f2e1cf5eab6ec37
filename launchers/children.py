"""The one place of the launchers that starts processes, signals and ends them."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import psutil

from hpcplat.errors import InvalidError
from launchers.cgroups import memory_groups

# linux/prctl.h
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_LIBC: Final = ctypes.CDLL(None, use_errno=True)

TAIL_BYTES: Final = 8192
TAIL_LINES: Final = 20


class NotStartedError(InvalidError):
    """A program that could not be started; ``code`` is what a shell would give."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(what)
        self.code = code


class Leader(Protocol):
    """The process of a rank, which leads a session: started by us, or adopted."""

    @property
    def pid(self) -> int:
        """Its process id."""
        ...

    def wait(self) -> int:
        """Reap it; minus the signal if one ended it (as subprocess has it)."""
        ...


@dataclass(frozen=True, slots=True)
class Adopted:
    """A child that another process forked for us."""

    pid: int

    def wait(self) -> int:
        """Reap it; minus the signal if one ended it."""
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)


@dataclass(slots=True)
class Rank:
    """A rank that runs: its number and its process."""

    number: int
    process: Leader
    log: Path
    stopped: bool = False


def start_rank(
    argv: Sequence[str], environ: Mapping[str, str], folder: Path, log: Path
) -> subprocess.Popen[bytes]:
    """Start a rank in a session of its own, its output going to the end of ``log``.

    The file is its standard output itself, no pipe: nothing is lost or held up by us,
    and an orphan that keeps it open keeps no step of Slurm's from ending. Raises
    NotStartedError with a shell's exit code: 127 not found, 126 not to be run.
    """
    if not folder.is_dir():
        raise NotStartedError(f"The folder {folder} is not there.", 1)
    with log.open("ab") as output:
        try:
            return subprocess.Popen(
                argv,
                env=dict(environ),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - one thread here
            )
        except OSError as error:
            raise _not_started(argv[0], error) from error


def _not_started(program: str, error: OSError) -> NotStartedError:
    if error.errno == errno.ENOENT:
        return NotStartedError(f"{program} was not found.", 127)
    if error.errno == errno.ENOEXEC:
        return NotStartedError(f"{program} is no program: it has no #! line.", 126)
    return NotStartedError(f"{program} can't be run: {error.strerror}.", 126)


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def adopt_orphans() -> None:
    """Make this process the parent of all its descendants that lose theirs."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def start_beside(argv: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start srun with our own output, in a session of its own."""
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, start_new_session=True)


def start_below(
    argv: Sequence[str], keep: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """Start a program that ends with us: one left over would hold up the step's end.

    ``keep`` are the files that it inherits, by their numbers.
    """
    return subprocess.Popen(
        argv,
        pass_fds=keep,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=_die_with_parent,  # noqa: PLW1509 - one thread here
    )


def next_ended() -> int | None:
    """Return the process id of a child that ended and is not reaped yet, or None."""
    options = os.WEXITED | os.WNOHANG | os.WNOWAIT
    try:
        found = os.waitid(os.P_ALL, 0, options)
    except ChildProcessError:
        return None
    return None if found is None else found.si_pid


def reap(process: Leader) -> int:
    """End what is left of an ended leader's group, and return its exit code.

    The group is signalled before the leader is reaped: until then its number can't
    belong to anybody else. A death by signal is 128 + the signal, as in a shell.
    """
    signal_group(process, signal.SIGKILL)
    status = process.wait()
    return 128 - status if status < 0 else status


def signal_group(process: Leader, number: signal.Signals) -> None:
    """Signal all of a rank's process group; one that is gone is fine."""
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return


def signal_catchers(process: Leader, number: signal.Signals) -> None:
    """Signal those processes of a rank that have a handler for it.

    A warning such as SIGUSR2 ends a process that does not know it: the shell around a
    training script, a data loader's worker. Those must not die of it.
    """
    for pid in _session(process.pid):
        if catches(pid, number):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue


def catches(pid: int, number: signal.Signals) -> bool:
    """Return whether a process has a handler for a signal (proc(5), SigCgt)."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(
            encoding="ascii", errors="replace"
        )
    except OSError:
        return False
    mask = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(mask.split()[1], 16) >> (number - 1) & 1)


def state(pid: int) -> str:
    """Return what a process is at, by proc(5): R, S, D (disk), T (stopped), Z."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return "Z"
    return text.rpartition(")")[2].split()[0]


def _session(leader: int) -> list[int]:
    """Return the leader and the processes below it."""
    try:
        below = psutil.Process(leader).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return [leader, *(child.pid for child in below)]


def reap_orphan(pid: int) -> None:
    """Reap an adopted process that ended."""
    os.waitpid(pid, 0)


def kill_descendants(patience: float = 5.0) -> None:
    """Kill all that is below this process, however it hid, until nothing is left.

    With orphans adopted, whatever forked itself away is a descendant still. Gives up
    after ``patience`` seconds (a process stuck in the kernel can't be killed).
    """
    end = time.monotonic() + patience
    while time.monotonic() < end:
        living = psutil.Process().children(recursive=True)
        if not living:
            return
        for child in living:
            try:
                child.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(living, timeout=0.2)


def log_end(log: Path) -> int:
    """Return a log's size in bytes; 0 if it is not there."""
    try:
        return log.stat().st_size
    except OSError:
        return 0


def log_from(log: Path, start: int) -> str:
    """Return what was written to a log since it had ``start`` bytes, not too much."""
    try:
        with log.open("rb") as file:
            file.seek(start)
            return file.read(8 * TAIL_BYTES).decode(errors="replace")
    except OSError:
        return ""


def memory_kills(root: Path = Path("/")) -> int:
    """Return how many processes of our control group the kernel killed for memory.

    By memory.events (cgroup v2, oom_kill) or memory.oom_control (v1). Where neither
    counts (no memory controller), by the whole machine's count in /proc/vmstat.
    """
    for path in (*_memory_files(root), root / "proc/vmstat"):
        try:
            words = path.read_text(encoding="ascii").split()
        except OSError:
            continue
        counts = dict(zip(words[::2], words[1::2], strict=False))
        if "oom_kill" in counts:
            return int(counts["oom_kill"])
    return 0


def _memory_files(root: Path) -> list[Path]:
    """Return where the counts of our control group may be."""
    try:
        return [
            group.folder / ("memory.events" if group.is_v2 else "memory.oom_control")
            for group in memory_groups(root)
        ]
    except OSError:
        return []


def tail(log: Path) -> tuple[str, ...]:
    """Return the last lines of a log, blank ones at its end left out."""
    try:
        with log.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ()
    return tuple(text.rstrip().splitlines()[-TAIL_LINES:])
