"""Secret values in run folders: put there at submission, wiped when the job is over.

Agents remove the file themselves when no other start can need it. A job that may run
again keeps it, and whether it will is known here alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from hpcplat.errors import HpcplatError
from hpcplat.runfiles import secrets_file
from hpcplat.runfolder import RunFolder
from server.database import Database
from server.preparation import Fill
from server.queries import keptsecrets
from server.queries.keptsecrets import Kept

logger = logging.getLogger("hpcplat.secrets")

Keep = Callable[[str, Mapping[str, str], str], None]  # folder, values, user


class SecretKeeper:
    """Writes and wipes secrets as the people whose they are, in the site's way."""

    def __init__(
        self, database: Database, fill: Fill, submits_as: Callable[[str], str | None]
    ) -> None:
        self._database = database
        self._fill = fill
        self._submits_as = submits_as
        self._given_up: set[str] = set()  # said once; tried again at the next start

    @contextmanager
    def keeping(self) -> Iterator[Keep]:
        """Give what puts values where only a job's user can read them.

        They are wiped again where the jobs are not written down after all.
        """
        kept: list[tuple[str, str]] = []

        def keep(folder: str, values: Mapping[str, str], user: str) -> None:
            kept.append((folder, user))
            self._put(folder, values, user)

        try:
            yield keep
        except BaseException:
            for folder, user in kept:
                self._wipe(folder, user)
            raise

    def _put(self, folder: str, values: Mapping[str, str], user: str) -> None:
        run = RunFolder(Path(folder))
        self._fill(run, [secrets_file(run, values)], self._submits_as(user))

    def wipe_ended(self, cluster: str) -> int:
        """Wipe the values of all jobs that are over; returns how many."""
        with self._database.read() as session:
            kept = keptsecrets.of_ended(session, cluster)
        wiped = [one.job_id for one in kept if self._wiped(one)]
        if wiped:
            with self._database.write() as session:
                keptsecrets.gone(session, wiped)
        return len(wiped)

    def _wiped(self, kept: Kept) -> bool:
        if kept.job_id in self._given_up:
            return False
        if self._wipe(kept.folder, kept.user):
            return True
        self._given_up.add(kept.job_id)
        return False

    def _wipe(self, folder: str, user: str) -> bool:
        if _is_surely_gone(RunFolder(Path(folder))):
            return True
        try:
            self._put(folder, {}, user)
        except HpcplatError as error:
            logger.warning("wiping the secrets in %s: %s", folder, error)
            return False
        return True


def _is_surely_gone(run: RunFolder) -> bool:
    """Tell whether the file is not there; one that we may not look for may be."""
    try:
        run.secrets.lstat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False
