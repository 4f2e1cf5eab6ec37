"""Submission through slurmrestd, with a token minted for the person who asked."""

from __future__ import annotations

import re
import stat
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import httpx
import jwt

from hpcplat.errors import (
    ForbiddenError,
    HpcplatError,
    InvalidError,
    UnavailableError,
)
from hpcplat.runfiles import RunFile
from hpcplat.runfolder import PRIVATE_FILE, RunFolder
from hpcplat.slurm import refusals
from hpcplat.slurm.commandline import CommandLine
from hpcplat.slurm.environment import account_of
from hpcplat.slurm.scheduler import Submission, SubmittedJob
from server.identity import restjob

TOKEN_SECONDS: Final = 120  # the life of a token: of one request, and clocks apart
# One submission, with all questions that it takes, in seconds: a claim is held for dead
# some time after it (Pace), and no POST may come later than that.
SUBMIT_WITHIN: Final = 30.0
LEAST_LEFT: Final = 5.0  # seconds; a POST that can't be waited for would be a doubt
CONNECT_TIMEOUT: Final = 5.0  # seconds
_SUBMIT: Final = re.compile(r"/slurm/v(?P<version>[0-9]+(?:\.[0-9]+){2})/job/submit/?")
_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
_LEAST_KEY: Final = 32  # bytes
_NOT_UNDERSTOOD: Final = 400  # it read the request and went no further
_NO_TOKEN: Final = 401  # answered before it looks at the request
_FORBIDDEN: Final = 403
_NO_SUCH_PATH: Final = 404

Version = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RestSite:
    """Where slurmrestd listens, and the file of the key that signs its tokens."""

    url: str
    key_file: Path


class _Filled(threading.local):
    """What this thread filled last: the submission that follows is the same thread's.

    So a file is never another submission's (the parts of an array have one folder), and
    what is not submitted after all is forgotten with the next.
    """

    folder: RunFolder | None = None
    files: tuple[RunFile, ...] = ()


class RestSlurm(CommandLine):
    """Slurm's commands, where each submission goes to slurmrestd as its person.

    The version of its API is asked for once, and again when slurmrestd does not have
    it any more. All that is no submission runs as the service, which the site makes an
    operator of Slurm.

    A key that can't be used, a token that is not taken, a slurmrestd that does not say
    what it speaks: these are faults of the site and no job's. Nothing is sent then
    (UnavailableError), and the job waits until they are mended.
    """

    def __init__(
        self, conf: Path | None, *, environ: Mapping[str, str], site: RestSite
    ) -> None:
        super().__init__(conf, environ=environ)
        self._site = site
        # No proxy that the environment names: tokens of all people would go through it.
        self._http = httpx.Client(base_url=site.url, trust_env=False)
        self._filled = _Filled()
        self._version: Version | None = None

    def fill(
        self, folder: RunFolder, files: Sequence[RunFile], user: str | None
    ) -> None:
        """Hold the files until this thread's submission, whose script carries them.

        Raises InvalidError for secrets: they may not stand in a script.
        """
        if any(file.mode == PRIVATE_FILE for file in files):
            raise InvalidError(
                "A site that submits through slurmrestd takes no secrets.",
                "Have the job read them from a file of yours: file:/path.",
            )
        self._filled.folder, self._filled.files = folder, tuple(files)

    def submit(self, submission: Submission) -> SubmittedJob:
        """Hand the job to slurmrestd as its person, within SUBMIT_WITHIN."""
        deadline = time.monotonic() + SUBMIT_WITHIN
        user = self._person(submission.user)
        folder, files = self._files_of(submission)

        def posted(version: Version) -> httpx.Response:
            job = restjob.description(
                submission.script, account_of(user).pw_dir, _PATH, version
            )
            warns = restjob.warning(submission.script, version)
            body = {"script": restjob.carrying(files, folder, warns), "job": job}
            return self._post(user, version, body, deadline)

        answer = posted(self._version or self._newest_version(user, deadline))
        if answer.status_code == _NO_SUCH_PATH:  # another Slurm by now: it took nothing
            answer = posted(self._newest_version(user, deadline))
        return submitted(answer)

    def _files_of(self, submission: Submission) -> tuple[RunFolder, Sequence[RunFile]]:
        folder, files = self._filled.folder, self._filled.files
        self._filled.folder, self._filled.files = None, ()
        is_its = folder is not None and str(folder.root) == submission.folder
        if folder is None or not is_its or files[-1].content != submission.script:
            raise UnavailableError("The files of the job were not written down.")
        return folder, files

    def _post(
        self, user: str, version: Version, body: object, deadline: float
    ) -> httpx.Response:
        path = f"/slurm/v{'.'.join(map(str, version))}/job/submit"
        headers = self._headers(user)
        timeout = _timeout(deadline)
        try:
            return self._http.post(path, json=body, headers=headers, timeout=timeout)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise _unreached(error) from error
        except httpx.RequestError as error:
            raise refusals.doubt(f"slurmrestd gave no answer ({error})") from error

    def estimate(self, submission: Submission) -> datetime | None:
        """Return None: slurmrestd has no --test-only."""
        self._person(submission.user)
        return None

    def api_version(self, user: str) -> Version:
        """Return the newest version of the API that slurmrestd speaks."""
        return self._newest_version(user, time.monotonic() + SUBMIT_WITHIN)

    def _newest_version(self, user: str, deadline: float) -> Version:
        headers = self._headers(user)
        timeout = _timeout(deadline)
        try:
            answer = self._http.get("/openapi/v3", headers=headers, timeout=timeout)
        except httpx.RequestError as error:
            raise _unreached(error) from error
        if not answer.is_success:
            raise UnavailableError(
                f"slurmrestd does not tell its versions (HTTP {answer.status_code}).",
                "See its log, and that the key is the cluster's.",
            )
        paths = _content(answer).get("paths")
        if not isinstance(paths, dict):
            raise UnavailableError(
                f"What answers at {self._site.url} does not describe slurmrestd's API.",
                "See that slurmrestd in the policy is its URL.",
            )
        found = [match for path in paths if (match := _SUBMIT.fullmatch(path))]
        versions = [tuple(map(int, m["version"].split("."))) for m in found]
        if not versions:
            raise UnavailableError(
                "slurmrestd offers no submission.", "Start it with its slurm plugins."
            )
        self._version = max(versions)
        return self._version

    def _headers(self, user: str) -> dict[str, str]:
        now = int(time.time())
        try:
            key = signing_key(self._site.key_file)
        except InvalidError as error:  # the site's to mend, and not the job's
            raise UnavailableError(error.what, error.remedy) from error
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
    try:
        status = path.stat()
        key = path.read_bytes()
    except OSError as error:
        raise InvalidError(
            f"The key {path} can't be read ({error.strerror}).",
            "Let the service's account read it, or name another: jwt_key in the policy.",
        ) from error
    if status.st_mode & (stat.S_IRWXO | stat.S_IWGRP):
        raise InvalidError(f"Others can read the key {path}.", f"chmod 0640 {path}")
    if len(key) < _LEAST_KEY:
        raise InvalidError(
            f"The key {path} has {len(key)} bytes, fewer than {_LEAST_KEY}.",
            "Make one: dd if=/dev/random of=FILE bs=32 count=1",
        )
    return key


def submitted(answer: httpx.Response) -> SubmittedJob:
    """Return the job that slurmrestd took, or raise what its answer means.

    A token that is not taken (401, or 403 without Slurm's words for a refusal) is a
    fault of the service or of its key: nothing was sent, and the job waits. The words
    "authentication error" of another status stay a doubt: Slurm says the same when it
    could not believe an answer to what it has taken.
    """
    content = _content(answer)
    errors = [
        str(e.get("error") or e.get("description") or e)
        for e in content.get("errors") or []
    ]
    job_id = content.get("job_id") or 0
    if answer.is_success and job_id and not errors:
        return SubmittedJob(int(job_id))
    words = "; ".join(errors)[:300] or f"HTTP {answer.status_code}"
    if job_id:
        raise refusals.doubt(f"slurmrestd answered {words} and job {job_id}")
    raise _refusal(answer.status_code, words)


def _refusal(status: int, words: str) -> HpcplatError:
    """Return what an answer without a job means."""
    row = refusals.find(words)
    if row is not None and status != _NO_TOKEN:
        return row.error(f"Slurm refused the job: {words}.", row.remedy)
    if status in {_NO_TOKEN, _FORBIDDEN}:
        return UnavailableError(
            f"slurmrestd did not take the token: {words}.",
            "Check the signing key, and the clocks.",
        )
    if status == _NO_SUCH_PATH:
        return UnavailableError(
            f"slurmrestd does not have the path that it names: {words}.",
            "See its log, and what stands between it and the service.",
        )
    if status == _NOT_UNDERSTOOD:
        return InvalidError(
            f"slurmrestd did not understand the job: {words}.",
            "Leave out what it names, or have the site submit in another way.",
        )
    return refusals.doubt(f"slurmrestd answered {words}")


def _timeout(deadline: float) -> httpx.Timeout:
    """Return how long a request may take; UnavailableError if it is too late for one."""
    left = deadline - time.monotonic()
    if left < LEAST_LEFT:
        raise UnavailableError(
            "slurmrestd takes too long to answer: nothing was sent.",
            "See its log, and its load.",
        )
    short = min(left, CONNECT_TIMEOUT)
    return httpx.Timeout(left, connect=short, write=short, pool=short)


def _content(answer: httpx.Response) -> dict[str, Any]:
    try:
        content = answer.json()
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _unreached(error: httpx.RequestError) -> UnavailableError:
    return UnavailableError(
        f"slurmrestd does not answer ({error}).", "See whether it runs."
    )
