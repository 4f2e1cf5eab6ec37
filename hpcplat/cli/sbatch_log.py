"""The log of a job that came by way of sbatch: a file of its user's, read here."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hpcplat.cli.session import FINAL, Reference, service
from hpcplat.client import Client
from hpcplat.dropin.output import Place, output_file
from hpcplat.errors import InvalidError, NotFoundError, UnavailableError
from hpcplat.sbatchline.commandline import parse
from hpcplat.sbatchline.directives import parse_script
from hpcplat.sbatchline.precedence import request

LOOK: Final = 1.0  # seconds between looks at a file that grows
PIECE: Final = 1024 * 1024  # bytes
LAST: Final = 5.0  # seconds after the job's end in which a file may still grow


def log_file(client: Client, found: Reference) -> Path:
    """Return the job's output file; InvalidError for an array without a task."""
    job = client.job(found.id)
    if job["tasks"] > 1 and found.task is None:
        raise InvalidError(
            f"Job {job['id']} has {job['tasks']} tasks, and a log for each.",
            f"Name one: hpcplat logs {job['id']}_0.",
        )
    call = job["spec"]["call"]
    asked = request(parse(call["words"]), parse_script(client.script(found.id)), ())
    attempts = client.attempts(found.id, found.task)
    node = attempts[-1]["nodes"][0] if attempts and attempts[-1]["nodes"] else ""
    place = Place(job["slurm_job_id"], job["name"], job["user"], found.task, node)
    path = output_file(asked, Path(call["folder"]), place)
    if path == Path(os.devnull):
        raise NotFoundError(
            f"Job {job['id']} sends its output to {path}.",
            "Whoever submitted it chose where else it logs.",
        )
    return path


def print_log(path: Path, tail: int | None) -> None:
    """Print a file, or its last lines."""
    text = _opened(path).decode(errors="replace")
    lines = text.splitlines(keepends=True)
    sys.stdout.write("".join(lines[-tail:] if tail else [] if tail == 0 else lines))


def follow_log(path: Path, job_id: str) -> None:
    """Print a file as it grows, until the job is over and it grows no more."""
    offset = 0
    ended_at: float | None = None
    while ended_at is None or time.monotonic() - ended_at < LAST:
        for piece in _pieces(path, offset):
            offset += len(piece)
            sys.stdout.write(piece.decode(errors="replace"))
        sys.stdout.flush()
        if ended_at is None and _is_over(job_id):
            ended_at = time.monotonic()
        time.sleep(LOOK)


def _is_over(job_id: str) -> bool:
    try:
        with service() as client:
            return client.job(job_id)["state"] in FINAL
    except UnavailableError:
        return False  # the service is away: the file is not


def _pieces(path: Path, offset: int) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            while piece := file.read(PIECE):
                yield piece
    except FileNotFoundError:
        return


def _opened(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise NotFoundError(
            f"There is no log yet at {path}.", "Wait until the job runs."
        ) from error
    except OSError as error:
        raise UnavailableError(
            f"{path} can't be read here ({error.strerror}).", "Read it where it lies."
        ) from error
