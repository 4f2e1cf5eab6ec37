"""A warm process: it has imported what ranks import, and forks them in milliseconds.

An agent starts one per node (``WarmProcess``). Ranks are forked twice, so that the
kernel hands them to the agent (which adopts orphans): it waits for them, signals them
and hears of their end as if it had started them itself.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from hpcplat.errors import UnavailableError
from launchers import stacks
from launchers.leaving import run_and_leave

_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
_LIBC: Final = ctypes.CDLL(None)

# Torch must find out whether there are GPUs without touching the CUDA driver: a process
# that did cannot be forked into one that uses it (torch.cuda, "Poison fork").
ENVIRONMENT: Final = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1", "OMP_NUM_THREADS": "1"}


class WarmError(UnavailableError):
    """The warm process is gone, or could not fork."""


@dataclass(frozen=True, slots=True)
class RankStart:
    """A rank to be: its words, whole environment, working folder and log file."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    folder: str
    log: str


@dataclass(frozen=True, slots=True)
class PythonRun:
    """What Python words run: a module (``-m``) or a script, and its arguments."""

    target: str
    is_module: bool
    arguments: tuple[str, ...]


def python_run(argv: Sequence[str]) -> PythonRun | None:
    """Return what a warm process can run of ``argv``; None if it starts no Python.

    Options of the interpreter other than -I, -u and -m need an interpreter of their own.
    """
    if not argv or not Path(argv[0]).name.startswith("python"):
        return None
    words = list(argv[1:])
    while words and words[0] in ("-I", "-u"):
        del words[0]
    if len(words) > 1 and words[0] == "-m":
        return PythonRun(words[1], True, tuple(words[2:]))
    if words and not words[0].startswith("-"):
        return PythonRun(words[0], False, tuple(words[1:]))
    return None


class WarmProcess:
    """The warm process as its starter sees it; not for threads.

    ``modules`` are imported at once; it says so on ``socket`` when that is done
    (``until_ready``), and forks from then on.
    """

    def __init__(self, modules: Sequence[str], environment: Mapping[str, str]) -> None:
        self.socket, other = socket.socketpair()
        self.is_ready = False
        words = (sys.executable, "-I", "-m", "launchers.warm", str(other.fileno()))
        with other:
            self._process = subprocess.Popen(
                (*words, *modules),
                env={**environment, **ENVIRONMENT},
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def until_ready(self) -> None:
        """Wait until all is imported; WarmError if the process ended over it."""
        if not self.is_ready:
            self._answer()
            self.is_ready = True

    def start(self, rank: RankStart) -> int:
        """Fork a rank; see ``start_all``."""
        return self.start_all([rank])[0]

    def start_all(self, ranks: Sequence[RankStart]) -> list[int]:
        """Fork ranks; their process ids, each of which leads a session of its own.

        Raises WarmError when the warm process is gone: start the ranks cold then.
        """
        self.until_ready()
        try:
            for number, rank in enumerate(ranks):
                _send(self.socket, {**asdict(rank), "number": number})
        except OSError as error:
            raise WarmError(f"The warm process is gone: {error}.") from error
        found = {}
        for _ in ranks:
            answer = self._answer()
            found[answer["number"]] = int(answer["pid"])
        return [found[number] for number in range(len(ranks))]

    def _answer(self) -> dict[str, Any]:
        try:
            answer = _receive(self.socket)
        except OSError as error:
            raise WarmError(f"The warm process is gone: {error}.") from error
        if answer is None:
            raise WarmError("The warm process is gone.")
        return answer

    def close(self) -> None:
        """End the warm process; its ranks are not its own and live on."""
        self.socket.close()
        self._process.terminate()
        self._process.wait()


def serve(connection: socket.socket) -> None:
    """Fork ranks as they are asked for, until the other side hangs up."""
    while (request := _receive(connection)) is not None:
        rank = RankStart(
            tuple(request["argv"]),
            request["environment"],
            request["folder"],
            request["log"],
        )
        between = os.fork()
        if between == 0:
            _fork_on(rank, request["number"], connection)
        os.waitpid(between, 0)


def _fork_on(rank: RankStart, number: int, connection: socket.socket) -> None:
    """Fork the rank from a process that ends at once: the kernel hands it on.

    The rank answers itself, once it is its new parent's child: one that waits for the
    rank as soon as it knows its number must not be told that there is none.
    """
    between = os.getpid()
    if os.fork():
        os._exit(0)
    while os.getppid() == between:
        time.sleep(0.0005)
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    os.setsid()
    _send(connection, {"number": number, "pid": os.getpid()})
    connection.close()
    _become(rank)


def _become(rank: RankStart) -> None:
    """Turn this process into the rank, and never return."""

    def program() -> int:
        _take_places(rank)
        return _run(rank.argv)

    run_and_leave(program)


def _take_places(rank: RankStart) -> None:
    os.environ.clear()
    os.environ.update(rank.environment)
    os.chdir(rank.folder)
    log = os.open(rank.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    stacks.listen()
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(int(rank.environment.get("OMP_NUM_THREADS", "1")))


def _run(argv: Sequence[str]) -> int:
    run = python_run(argv)
    if run is None:
        os.execvpe(argv[0], list(argv), os.environ)
    sys.argv = [run.target, *run.arguments]
    if run.is_module:
        runpy.run_module(run.target, run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, str(Path(run.target).parent.resolve()))
        runpy.run_path(run.target, run_name="__main__")
    return 0


def _send(connection: socket.socket, message: object) -> None:
    content = json.dumps(message).encode()
    connection.sendall(len(content).to_bytes(4, "big") + content)


def _receive(connection: socket.socket) -> dict[str, Any] | None:
    head = _exactly(connection, 4)
    if head is None:
        return None
    content = _exactly(connection, int.from_bytes(head, "big"))
    found: dict[str, Any] | None = json.loads(content) if content else None
    return found


def _exactly(connection: socket.socket, count: int) -> bytes | None:
    parts = b""
    while len(parts) < count:
        part = connection.recv(count - len(parts))
        if not part:
            return None
        parts += part
    return parts


def main(arguments: Sequence[str]) -> None:
    """Import the modules, then serve on the socket of the given number."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    connection = socket.socket(fileno=int(arguments[0]))
    for name in arguments[1:]:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a collection would write to every page that is shared with the ranks
    _send(connection, {"ready": True})
    serve(connection)


if __name__ == "__main__":
    main(sys.argv[1:])
