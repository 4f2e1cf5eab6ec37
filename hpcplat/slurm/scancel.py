"""scancel: end a job, or send its batch shell a signal."""

from __future__ import annotations

import re
from typing import Final

from hpcplat.errors import InvalidError
from hpcplat.slurm.addresses import checked

_SIGNAL: Final = re.compile(r"(?:SIG)?[A-Z][A-Z0-9]{1,9}|[1-9][0-9]?")


def argv(address: str, signal: str | None = None) -> list[str]:
    """Return the arguments. A signal goes to the batch shell, which passes it on.

    Without ``--batch`` the signal would reach the steps and not the shell.
    """
    if signal is None:
        return ["scancel", checked(address)]
    if not _SIGNAL.fullmatch(signal):
        raise InvalidError(f"{signal[:20]!r} is not a signal.", "Write USR2, TERM ….")
    return ["scancel", "--batch", f"--signal={signal}", checked(address)]
