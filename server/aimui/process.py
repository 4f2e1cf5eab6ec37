"""Processes of Aim: the UI of one repository, and the collector; started and ended here.

A query in the UI can run code (CVE-2025-5321): its process gets a Unix socket in place
of a port, an environment without secrets, and where the system allows it a root folder
in which nothing else exists (server.aimui.confinement).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import httpx

from hpcplat.errors import UnavailableError

STARTS_WITHIN: Final = 60.0  # seconds; some 8 on an idle machine
TRIES: Final = 2
PATIENCE: Final = 5.0  # seconds for an answer of one that has just come up
INDEXED_WITHIN: Final = 20.0  # or there is no run at all
ENDS_WITHIN: Final = 5.0
LOG_BYTES: Final = 4096

# Aim's command line without its console script, which may not be on the PATH.
_AIM: Final = "from aim.cli.cli import cli_entry_point as run; run(prog_name='aim')"


class AimUi:
    """`aim up` on one repository, at ``base`` (a path), on a Unix socket."""

    def __init__(self, folder: Path, base: str) -> None:
        self._folder, self._base = folder, base
        # A socket's path has 107 characters at most; a run's folder may have more.
        self._private = Path(tempfile.mkdtemp(prefix="hpcplat-aim-"))
        self._log = folder / "ui.log"
        self._inode = 0
        self._process: subprocess.Popen[bytes] | None = None
        self.used = time.monotonic()

    @property
    def socket(self) -> Path:
        """Where it listens."""
        return self._private / "ui"

    @property
    def is_current(self) -> bool:
        """Whether it runs, on the repository that is there now."""
        return self._runs() and self._inode == self._inode_now()

    def _runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def ensure(self) -> None:
        """Start it if it does not run, or if its repository was made anew.

        Returns when it answers; UnavailableError if it does not. One that hangs is
        ended and started once more: on a busy machine that was seen.
        """
        self.used = time.monotonic()
        if self.is_current:
            return
        for _ in range(TRIES):
            self.stop()
            self._inode = self._inode_now()
            self._start()
            if self._await():
                return
            if not self._runs():
                break
        self.stop()
        raise UnavailableError(
            f"The Aim UI did not start: {last_words(self._log)}",
            f"See {self._log}; `hpcplat plot` draws curves without it.",
        )

    def _inode_now(self) -> int:
        try:
            return (self._folder / ".aim").stat().st_ino
        except FileNotFoundError:
            return 0

    def stop(self) -> None:
        """End it and its children: uvicorn's outlive a parent that was killed."""
        if self._process is not None:
            end_group(self._process)
            self._process = None

    def close(self) -> None:
        """End it for good, and remove its private folder."""
        self.stop()
        shutil.rmtree(self._private, ignore_errors=True)

    def _start(self) -> None:
        self.socket.unlink(missing_ok=True)
        aim = [sys.executable, "-I", "-c", _AIM, "up", "--yes"]
        aim += ["--repo", str(self._folder), "--uds", str(self.socket)]
        aim += ["--base-path", self._base, "--workers", "1"]
        confined = [sys.executable, "-I", "-m", "server.aimui.confinement"]
        confined += ["--keep", str(self._folder), str(self._private), "--"]
        self._process = start([*confined, *aim], self._log, self._private)

    def _await_index(self, client: httpx.Client) -> None:
        """Wait until a run can be found: a page that asks before waits for ever."""
        deadline = time.monotonic() + INDEXED_WITHIN
        path = f"{self._base}/api/runs/search/run/?limit=1&report_progress=false"
        while (left := deadline - time.monotonic()) > 0:
            if _content(client, path, left):
                return
            time.sleep(0.3)

    def _await(self) -> bool:
        """Wait until it answers; False if it ended, or does not within its time."""
        deadline = time.monotonic() + STARTS_WITHIN
        transport = httpx.HTTPTransport(uds=str(self.socket))
        with httpx.Client(transport=transport, base_url="http://aim") as client:
            path = f"{self._base}/api/projects/"
            while time.monotonic() < deadline and self._runs():
                # Not before it listens: each try would leave a socket unclosed.
                if self.socket.exists() and _content(client, path, PATIENCE):
                    self._await_index(client)
                    return True
                time.sleep(0.1)
        return False


def start(
    argv: Sequence[str],
    log: Path,
    folder: Path,
    environ: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a program in a group of its own; without ``environ``, in a bare one."""
    with log.open("ab") as output:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=folder,
            env=dict(environ) if environ is not None else bare_environment(folder),
            start_new_session=True,
        )


def bare_environment(home: Path) -> dict[str, str]:
    """Return what any program needs, and nothing that says who we are."""
    return {"PATH": os.defpath, "HOME": str(home), "LANG": "C.UTF-8"}


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process and its group, gently first."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        try:
            process.wait(ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            continue
    process.wait()


def last_words(log: Path) -> str:
    """Return the last line of a log."""
    try:
        text = log.read_bytes()[-LOG_BYTES:].decode(errors="replace")
    except OSError:
        return "it left no log"
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it said nothing"


def _content(client: httpx.Client, path: str, patience: float) -> bytes:
    """Return what it answers within so many seconds; nothing if it does not."""
    try:
        answer = client.get(path, timeout=patience)
    except httpx.TransportError:
        return b""
    return answer.content if answer.is_success else b""
