"""The way from a command to the service, and what all commands share."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Annotated, Any, Final

import typer

from hpcplat.cli.quickstart import Client, ServiceFaultError, connect
from hpcplat.cli.resident import settings_with_resident
from hpcplat.dropin.spool import SPOOL, Spool
from hpcplat.errors import (
    HpcplatError,
    InvalidError,
    NotFoundError,
    UnavailableError,
)
from hpcplat.settings import read_settings

FINAL: Final = frozenset({"COMPLETED", "FAILED", "CANCELLED"})

_ID: Final = re.compile(r"[0-9a-hjkmnp-tv-z]{4,16}")
_TASK: Final = re.compile(r"(.+)_([0-9]{1,7})")
MOST: Final = 1000  # jobs among which a name or Slurm's number is looked up

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
JobName = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help="A job's id (or its beginning), its name, or Slurm's number of it;"
        " an array task as JOB_4.",
    ),
]


@dataclass(frozen=True, slots=True)
class Reference:
    """The job that somebody means, and the array task, if so."""

    job: dict[str, Any]
    task: int | None = None

    @property
    def id(self) -> str:
        """Return hpcplat's id of the job."""
        return str(self.job["id"])


@contextmanager
def service() -> Iterator[Client]:
    """Open the way to the service: the site's, or one of our own.

    Where the site's is of another release, an error of its says that too.
    """
    settings = read_settings()
    is_ours = not settings.url
    if is_ours and settings.resident:
        settings = settings_with_resident(settings)
    with connect(settings) as client:
        spool = Spool(settings.data / SPOOL)
        if not spool.is_empty():
            importlib.import_module("hpcplat.cli.delivery").deliver(client, spool)
        try:
            yield client
        except (InvalidError, NotFoundError, ServiceFaultError) as error:
            other = "" if is_ours else other_release(client)
            if not other:
                raise
            raise UnavailableError(f"{error} {other}") from error


def other_release(client: Client) -> str:
    """Return what to do where the service is of another release; empty if it is not."""
    try:
        theirs, ours = client.health()["version"], version("hpcplat")
    except (HpcplatError, ServiceFaultError, KeyError):
        return ""
    if theirs.split(".")[:2] == ours.split(".")[:2]:
        return ""
    return (
        f"The service is hpcplat {theirs}, this is {ours}:"
        f" pip install 'hpcplat=={theirs}'."
    )


def find(client: Client, text: str) -> Reference:
    """Return the job that is meant by an id, its beginning, a name or Slurm's number.

    Raises NotFoundError, or InvalidError where a name means several jobs.
    """
    job = _looked_up(client, text)
    if job is not None:
        return Reference(job)
    split = _TASK.fullmatch(text)
    if split is not None:
        job = _looked_up(client, split[1])
        if job is not None:
            return Reference(job, int(split[2]))
    raise NotFoundError(f"There is no job {text!r}.", "List yours: hpcplat jobs.")


def _looked_up(client: Client, text: str) -> dict[str, Any] | None:
    by_name = client.jobs(limit=MOST, name=text)
    if by_name:
        return _meant(by_name, text)
    if text.isdecimal():
        same = [j for j in client.jobs(limit=MOST) if str(j["slurm_job_id"]) == text]
        return same[0] if same else None
    if not _ID.fullmatch(text):
        return None
    try:
        return client.job(text)
    except NotFoundError as error:
        if "several" in error.what:
            raise
        return None


def _meant(jobs: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """Return the job that a name means: the only live one, or the newest."""
    live = [job for job in jobs if job["state"] not in FINAL]
    if len(live) > 1:
        ids = ", ".join(job["id"] for job in live[:4])
        raise InvalidError(
            f"{name!r} is the name of {len(live)} jobs that are not over.",
            f"Give an id: {ids}{' …' if len(live) > 4 else ''}.",
        )
    return live[0] if live else jobs[0]


def print_json(value: object) -> None:
    """Print a value as JSON."""
    print(json.dumps(value, indent=2, ensure_ascii=False, default=str))
