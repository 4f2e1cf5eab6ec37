"""Who is told about a call of sbatch: the service, and a folder until it has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from hpcplat import processes
from hpcplat.dropin.passage import Accepted
from hpcplat.dropin.record import closing
from hpcplat.dropin.spool import Spool
from hpcplat.errors import ForbiddenError, UnavailableError
from hpcplat.ids import find_key

SIGNALLED: Final = 128  # exit statuses from here on: a signal, so who knows


class Service(Protocol):
    """What a site's service is asked and told; see Journal."""

    def announce(self, record: Mapping[str, Any]) -> None:
        """Ask whether the job may be submitted; raises ForbiddenError if it may not."""
        ...

    def report(self, record: Mapping[str, Any]) -> None:
        """Tell what became of it."""
        ...


class Journal:
    """The story of one call: announced, accepted by Slurm, ended.

    It is in the folder before sbatch runs, so that a crash loses nothing. A service
    that does not answer never keeps a job from being submitted: Slurm's own limits
    hold all the same, and the record is delivered later.
    """

    def __init__(
        self,
        record: Mapping[str, Any],
        spool: Spool,
        service: Service | None,
        *,
        waits: bool = False,
    ) -> None:
        self.record = dict(record)
        self._waits = waits
        self._spool = spool
        self._service = service
        self._accepted: Accepted | None = None

    def announced(self) -> str:
        """Write the call down and ask the service; returns a warning, mostly empty.

        Raises what the service refuses the job with; then nothing is kept of it.
        """
        warning = self._keep()
        if self._service is None:
            return warning
        try:
            self._service.announce(self.record)
        except UnavailableError as error:
            return warning or f"{error.what} The job is submitted, and tracked later."
        except BaseException:  # refused, or Ctrl-C: no job, no record
            self._spool.remove(self.record["key"])
            raise
        return warning

    def accepted(self, answer: Accepted) -> None:
        """Note the job's number, the moment it is known."""
        self._accepted = answer
        if self._waits:  # the end may be days away
            self._close(None)
            self.report()

    def ended(self, status: int) -> None:
        """Note how sbatch ended; of a job that was refused nothing is kept."""
        self._close(status)
        if self._accepted is None and 0 < status < SIGNALLED:
            self._spool.remove(self.record["key"])

    @property
    def has_news(self) -> bool:
        """Whether there is something to tell a service."""
        return self._service is not None and self._accepted is not None

    def report(self) -> None:
        """Tell the service; until it has heard, the record stays in the folder."""
        if self._service is None or self._accepted is None:
            return
        try:
            self._service.report(self.record)
        except (UnavailableError, ForbiddenError):
            return
        if self.record["status"] is not None:
            self._spool.remove(self.record["key"])

    def submitted_job(self) -> int | None:
        """Return the job's number; where sbatch could not say it, Slurm is asked."""
        if self._accepted is not None:
            return self._accepted.job_id
        queue = processes.run(["squeue", "--me", "-h", "-o", "%A %k"], timeout=10)
        for line in queue.stdout.splitlines():
            number, _, comment = line.partition(" ")
            if find_key(comment) == self.record["key"]:
                return int(number)
        return None

    def _keep(self) -> str:
        """Write the record down; returns a warning where that can't be (a full disk).

        That is no reason to keep a job from being submitted.
        """
        try:
            self._spool.write(self.record)
        except OSError as error:
            return f"The job is submitted, not tracked: {error.strerror}."
        return ""

    def _close(self, status: int | None) -> None:
        self.record |= closing(status, self._accepted)
        self._keep()
