"""How a job is named to Slurm's commands: ``123``, ``123_4``, ``123_[5-9%2]``."""

from __future__ import annotations

import re
from typing import Final

from hpcplat.errors import InvalidError

_ADDRESS: Final = re.compile(
    r"[1-9][0-9]{0,9}(?:_[0-9]{1,10}|_\[[0-9,\-%:]{1,4000}\]|\+[0-9]{1,5})?"
)


def checked(address: str) -> str:
    """Return the address without an array's ``%limit``, which no command takes.

    Raises InvalidError for anything but a job, an array task, a set of array tasks
    or a component of a heterogeneous job.
    """
    if not _ADDRESS.fullmatch(address):
        raise InvalidError(
            f"{address[:60]!r} is not a job.", "Write 123, 123_4, 123_[5-9] or 123+1."
        )
    return re.sub(r"%[0-9]+", "", address)
