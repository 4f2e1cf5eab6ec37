"""Submission through slurmrestd, with a token minted for the person who asked."""

from __future__ import annotations

import re
import stat
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import httpx
import jwt

from hpcplat.errors import ForbiddenError, InvalidError, UnavailableError
from hpcplat.runfiles import RunFile
from hpcplat.runfolder import PRIVATE_FILE, RunFolder
from hpcplat.slurm import refusals
from hpcplat.slurm.commandline import CommandLine
from hpcplat.slurm.environment import account_of
from hpcplat.slurm.scheduler import Submission, SubmittedJob
from server.identity import restjob

TOKEN_SECONDS: Final = 120  # the life of a token: of one request, and clocks apart
TIMEOUT: Final = 30.0
_SUBMIT: Final = re.compile(r"/slurm/v(?P<version>[0-9]+(?:\.[0-9]+){2})/job/submit/?")
_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
_LEAST_KEY: Final = 32  # bytes
_NOT_UNDERSTOOD: Final = 400  # it read the request and went no further
_NO_SUCH_PATH: Final = 404

Version = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RestSite:
    """Where slurmrestd listens, and the file of the key that signs its tokens."""

    url: str
    key_file: Path


class RestSlurm(CommandLine):
    """Slurm's commands, where each submission goes to slurmrestd as its person.

    The version of its API is asked for once, and again when slurmrestd does not have
    it any more. All that is no submission runs as the service, which the site makes an
    operator of Slurm.
    """

    def __init__(
        self, conf: Path | None, *, environ: Mapping[str, str], site: RestSite
    ) -> None:
        super().__init__(conf, environ=environ)
        self._site = site
        self._http = httpx.Client(base_url=site.url, timeout=TIMEOUT)
        self._held: dict[str, tuple[RunFolder, tuple[RunFile, ...]]] = {}
        self._version: Version | None = None

    def fill(
        self, folder: RunFolder, files: Sequence[RunFile], user: str | None
    ) -> None:
        """Hold the files until the submission, whose script carries them.

        Raises InvalidError for secrets: they may not stand in a script.
        """
        if any(file.mode == PRIVATE_FILE for file in files):
            raise InvalidError(
                "A site that submits through slurmrestd takes no secrets.",
                "Have the job read them from a file of yours: file:/path.",
            )
        self._held[str(folder.root)] = (folder, tuple(files))

    def submit(self, submission: Submission) -> SubmittedJob:
        """Hand the job to slurmrestd as its person."""
        user = self._person(submission.user)
        folder, files = self._held.pop(submission.folder)

        def posted(version: Version) -> httpx.Response:
            job = restjob.description(
                submission.script, account_of(user).pw_dir, _PATH, version
            )
            warns = restjob.warning(submission.script, version)
            body = {"script": restjob.carrying(files, folder, warns), "job": job}
            return self._post(user, version, body)

        answer = posted(self._version or self.api_version(user))
        if answer.status_code == _NO_SUCH_PATH:  # another Slurm by now: it took nothing
            answer = posted(self.api_version(user))
        return submitted(answer)

    def _post(self, user: str, version: Version, body: object) -> httpx.Response:
        path = f"/slurm/v{'.'.join(map(str, version))}/job/submit"
        try:
            return self._http.post(path, json=body, headers=self._headers(user))
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise _unreached(error) from error
        except httpx.TransportError as error:
            raise refusals.doubt(f"slurmrestd gave no answer ({error})") from error

    def estimate(self, submission: Submission) -> datetime | None:
        """Return None: slurmrestd has no --test-only."""
        self._person(submission.user)
        return None

    def api_version(self, user: str) -> Version:
        """Return the newest version of the API that slurmrestd speaks."""
        try:
            answer = self._http.get("/openapi/v3", headers=self._headers(user))
        except httpx.TransportError as error:
            raise _unreached(error) from error
        if not answer.is_success:
            raise UnavailableError(
                f"slurmrestd does not tell its versions (HTTP {answer.status_code}).",
                "See its log, and that the key is the cluster's.",
            )
        found = [m for path in answer.json()["paths"] if (m := _SUBMIT.fullmatch(path))]
        versions = [tuple(map(int, m["version"].split("."))) for m in found]
        if not versions:
            raise UnavailableError(
                "slurmrestd offers no submission.", "Start it with its slurm plugins."
            )
        self._version = max(versions)
        return self._version

    def _headers(self, user: str) -> dict[str, str]:
        now = int(time.time())
        key = signing_key(self._site.key_file)
        return {
            "X-SLURM-USER-NAME": user,
            "X-SLURM-USER-TOKEN": slurm_token(user, key, now),
        }

    def _person(self, user: str | None) -> str:
        """Return the user, whom no header and no name may turn into another."""
        if user is None or account_of(user).pw_uid == 0:
            raise ForbiddenError(
                "This service submits nothing as itself or as root.",
                "Ask as an ordinary user.",
            )
        return user


def slurm_token(user: str, key: bytes, now: int) -> str:
    """Return a token that lets one request act as a Unix user."""
    claims = {"sun": user, "iat": now, "exp": now + TOKEN_SECONDS}
    return jwt.encode(claims, key, algorithm="HS256")


def signing_key(path: Path) -> bytes:
    """Return the key; InvalidError if others can read it: it is as strong as root."""
    status = path.stat()
    if status.st_mode & (stat.S_IRWXO | stat.S_IWGRP):
        raise InvalidError(f"Others can read the key {path}.", f"chmod 0640 {path}")
    key = path.read_bytes()
    if len(key) < _LEAST_KEY:
        raise InvalidError(
            f"The key {path} has {len(key)} bytes, fewer than {_LEAST_KEY}.",
            "Make one: dd if=/dev/random of=FILE bs=32 count=1",
        )
    return key


def submitted(answer: httpx.Response) -> SubmittedJob:
    """Return the job that slurmrestd took, or raise what its answer means."""
    content = _content(answer)
    errors = [
        str(e.get("error") or e.get("description") or e)
        for e in content.get("errors", [])
    ]
    job_id = content.get("job_id") or 0
    if answer.is_success and job_id and not errors:
        return SubmittedJob(int(job_id))
    words = "; ".join(errors)[:300] or f"HTTP {answer.status_code}"
    row = refusals.find(words)
    if row is not None:
        raise row.error(f"Slurm refused the job: {words}.", row.remedy)
    if answer.status_code in {401, 403}:
        raise ForbiddenError(
            f"slurmrestd did not take the token: {words}.", "Check the signing key."
        )
    if answer.status_code == _NOT_UNDERSTOOD:
        raise InvalidError(
            f"slurmrestd did not understand the job: {words}.",
            "Leave out what it names, or have the site submit in another way.",
        )
    raise refusals.doubt(f"slurmrestd answered {words}")


def _content(answer: httpx.Response) -> dict[str, Any]:
    try:
        content = answer.json()
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _unreached(error: httpx.TransportError) -> UnavailableError:
    return UnavailableError(
        f"slurmrestd does not answer ({error}).", "See whether it runs."
    )
