"""One tree of errors: what a person can mend, and what is a fault of ours."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every hpcplat program; a test freezes them."""

    DONE = 0
    MENDABLE = 1  # yours to mend: the message says how
    USAGE = 2  # the command line itself is wrong
    BUG = 3  # ours: a log was kept
    INTERRUPTED = 130  # Ctrl-C, as shells have it


class HpcplatError(Exception):
    """Something a person can mend: one line that says what, and the remedy.

    ``remedy`` is an imperative sentence; ``str()`` gives both on one line.
    """

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.what} {self.remedy}".strip()


class InvalidError(HpcplatError):
    """A value that cannot be right: refused where the record is made."""


class NotFoundError(HpcplatError):
    """A job, node, dataset, file … that is not there."""


class ConflictError(HpcplatError):
    """The thing is there but in a state that does not allow the action."""


class ForbiddenError(HpcplatError):
    """The person may not do this."""


class UnavailableError(HpcplatError):
    """Something outside (Slurm, a database, the service) does not answer."""
