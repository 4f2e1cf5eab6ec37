"""The passage to the real sbatch: its words, files and environment as they came."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

_SUBMITTED: Final = re.compile(
    rb"Submitted batch job (?P<id>\d+)(?: on cluster (?P<cluster>\S+))?\n"
)
_PARSABLE: Final = re.compile(rb"(?P<id>\d+)(?:;(?P<cluster>[^\s;]+))?\n")


@dataclass(frozen=True, slots=True)
class Accepted:
    """What the real sbatch printed when Slurm took the job."""

    job_id: int
    cluster: str


def parse_answer(line: bytes) -> Accepted | None:
    """Return the job that a line of sbatch's output tells of."""
    match = _SUBMITTED.fullmatch(line) or _PARSABLE.fullmatch(line)
    if match is None:
        return None
    return Accepted(int(match["id"]), (match["cluster"] or b"").decode())


def original_environment() -> Mapping[bytes, bytes]:
    """Return the environment that this process was started with.

    Python itself may have added LC_CTYPE to its own; the job must not see that.
    """
    try:
        block = Path("/proc/self/environ").read_bytes()
    except OSError:
        return dict(os.environb)
    pairs = (entry.partition(b"=") for entry in block.split(b"\0") if b"=" in entry)
    return {name: value for name, _, value in pairs if name}


def run(
    program: str,
    words: Sequence[str],
    script: bytes | None,
    environment: Mapping[bytes, bytes],
    accepted: Callable[[Accepted], None],
) -> int:
    """Run the real sbatch to its end; its output passes through as it comes.

    ``script`` is given on its standard input, where that is where it came from; else
    it inherits ours. ``accepted`` is called when the job's id is known (with --wait
    long before the end). Returns the exit status, 128 + n after a signal.
    """
    with _input(script) as stdin:
        process = subprocess.Popen(
            ["sbatch", *words],  # its own name in its messages, wherever it lies
            executable=program,
            stdin=stdin,
            stdout=subprocess.PIPE,
            env=environment,
            close_fds=False,  # --export-file=FD names a descriptor of the caller
        )
        return _pass_on(process, accepted)


def _pass_on(
    process: subprocess.Popen[bytes], accepted: Callable[[Accepted], None]
) -> int:
    """Forward the output; a Ctrl-C reached sbatch too, which decides what it means."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with process:
            assert process.stdout is not None
            for line in process.stdout:
                sys.stdout.buffer.write(line)
                sys.stdout.buffer.flush()
                answer = parse_answer(line)
                if answer is not None:
                    accepted(answer)
    finally:
        signal.signal(signal.SIGINT, before)
    status = process.returncode
    return 128 - status if status < 0 else status


@contextmanager
def _input(script: bytes | None) -> Iterator[IO[bytes] | None]:
    if script is None:
        yield None
        return
    with tempfile.TemporaryFile() as file:
        file.write(script)
        file.seek(0)
        yield file
