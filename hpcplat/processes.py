"""The one place that starts programs: argument lists, a time limit, no shell."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcplat.errors import UnavailableError


class ProgramMissingError(UnavailableError):
    """The program is not on this machine's PATH."""


class ProgramTimeoutError(UnavailableError):
    """The program did not end in time; it and its children were killed."""


@dataclass(frozen=True, slots=True)
class Completed:
    """A program that ended: its arguments, exit status and what it printed."""

    argv: tuple[str, ...]
    status: int
    stdout: str
    stderr: str

    @property
    def ok(self) -> bool:
        """Whether the exit status is 0."""
        return self.status == 0

    def complaint(self) -> str:
        """Return the last line it printed to stderr (else stdout), for a message."""
        lines = (self.stderr.strip() or self.stdout.strip()).splitlines()
        return lines[-1].strip() if lines else f"exit status {self.status}"


def run(
    argv: Sequence[str | os.PathLike[str]],
    *,
    timeout: float,
    stdin: str = "",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Completed:
    """Run a program to its end and return what it printed.

    ``timeout`` is in seconds. The program gets a session of its own, so that on a
    time-out all of its children are killed with it. Output is decoded as UTF-8,
    bytes that are not UTF-8 as U+FFFD. Raises ProgramMissingError or
    ProgramTimeoutError; a non-zero exit status is not an error here.
    """
    words = tuple(os.fspath(word) for word in argv)
    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=None if env is None else dict(env),
            cwd=cwd,
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise ProgramMissingError(
            f"{words[0]} was not found.", "Install it or add its folder to PATH."
        ) from error
    except PermissionError as error:
        raise ProgramMissingError(
            f"{words[0]} may not be executed.", "Check its mode and owner."
        ) from error
    with process:
        try:
            out, err = process.communicate(stdin.encode(), timeout=timeout)
        except subprocess.TimeoutExpired as error:
            kill_group(process.pid)
            raise ProgramTimeoutError(
                f"{words[0]} did not answer within {timeout:g} s.",
                "See whether the service behind it is up.",
            ) from error
        except BaseException:  # Ctrl-C: nothing that we started may stay behind
            kill_group(process.pid)
            raise
    return Completed(
        words,
        process.returncode,
        out.decode(errors="replace"),
        err.decode(errors="replace"),
    )


def kill_group(leader: int) -> None:
    """Send SIGKILL to the process group ``leader``; a group that is gone is fine."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return


def end_group(leader: int, grace: float) -> None:
    """End a process group that is not our child: SIGTERM, then SIGKILL.

    ``grace``: seconds between the two.
    """
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGTERM)
        end = time.monotonic() + grace
        while time.monotonic() < end:
            os.killpg(leader, 0)
            time.sleep(0.05)
    kill_group(leader)
