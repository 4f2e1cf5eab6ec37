"""How a job is named to Slurm's commands: ``123``, ``123_4``, ``123_[5-9%2]``."""

from __future__ import annotations

import re
from typing import Final

from hpcplat.errors import InvalidError

_ADDRESS: Final = re.compile(
    r"[1-9][0-9]{0,9}(?:_[0-9]{1,7}|_\[[0-9,\-%:]{1,100000}\]|\+[0-9]{1,5})?"
)
_LIMIT: Final = re.compile(r"%[0-9]+")
_STEPPED: Final = re.compile(r"([0-9]{1,7})-([0-9]{1,7}):([1-9][0-9]{0,6})")


def checked(address: str) -> str:
    """Return the address as the commands take it.

    squeue shows an array's waiting tasks as ``123_[6-70:2%4]``, but scancel knows
    neither the limit nor the step: the one is dropped, the other written out.
    Raises InvalidError for anything but a job, an array task, a set of array tasks
    or a component of a heterogeneous job.
    """
    if not _ADDRESS.fullmatch(address):
        raise InvalidError(
            f"{address[:60]!r} is not a job.", "Write 123, 123_4, 123_[5-9] or 123+1."
        )
    return _STEPPED.sub(_written_out, _LIMIT.sub("", address))


def _written_out(match: re.Match[str]) -> str:
    first, last, step = map(int, match.groups())
    return ",".join(map(str, range(first, last + 1, step)))
