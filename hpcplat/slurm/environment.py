"""The environment that Slurm's commands get: an allow-list, nothing leaks in.

Inside of an allocation the caller's SLURM_*, SBATCH_* and PMIX_* variables would
change what sbatch and srun do, silently; SQUEUE_FORMAT and its like would change
what is printed.
"""

from __future__ import annotations

import pwd
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from hpcplat.errors import InvalidError

_KEPT: Final = frozenset(
    {
        "HOME",
        "KRB5CCNAME",
        "LANG",
        "LC_ALL",
        "LC_CTYPE",
        "LD_LIBRARY_PATH",
        "LOGNAME",
        "PATH",
        "SHELL",
        "SLURM_CONF",
        "SLURM_JWT",
        "TMPDIR",
        "TZ",
        "USER",
    }
)
# What is the caller's alone: it must not reach the job of another.
_OWN: Final = frozenset({"KRB5CCNAME", "LD_LIBRARY_PATH", "SLURM_JWT", "TMPDIR"})
_PATH: Final = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"


def allowed(environ: Mapping[str, str], conf: Path | None) -> dict[str, str]:
    """Return what of the environment Slurm's commands may see."""
    kept = {name: value for name, value in environ.items() if name in _KEPT}
    kept.setdefault("PATH", _PATH)
    if conf is not None:
        kept["SLURM_CONF"] = str(conf)
    return kept


def for_queries(base: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of commands whose answers are parsed.

    Times come in UTC; a long array's task list comes whole (squeue(1)).
    """
    return dict(base) | {"TZ": "UTC", "LC_ALL": "C.UTF-8", "SLURM_BITSTR_LEN": "0"}


def for_estimates(base: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of ``sbatch --test-only``: times in epoch seconds.

    The time zone stays the person's own, since ``--begin=16:00`` means theirs.
    """
    return dict(base) | {"SLURM_TIME_FORMAT": "%s"}


def of_user(base: Mapping[str, str], user: str) -> dict[str, str]:
    """Return the environment for a job of somebody else: their home, not ours."""
    entry = account_of(user)
    kept = {name: value for name, value in base.items() if name not in _OWN}
    return kept | {
        "HOME": entry.pw_dir,
        "LOGNAME": entry.pw_name,
        "SHELL": entry.pw_shell,
        "USER": entry.pw_name,
    }


def account_of(user: str) -> pwd.struct_passwd:
    """Return the Unix account of a user. Raises InvalidError if there is none."""
    try:
        return pwd.getpwnam(user)
    except KeyError as error:
        raise InvalidError(
            f"There is no Unix account {user!r} on this machine.",
            "Submit as somebody who has one here and on the nodes.",
        ) from error
