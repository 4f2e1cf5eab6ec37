"""sacctmgr's changes: accounts, users in them, and their limits; arguments alone.

A limit's key is Slurm's name, with the resource behind a colon where it counts one
(``GrpTRES:gres/gpu``): sacctmgr merges such lists, so each resource is set by itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from hpcplat.errors import InvalidError
from hpcplat.slurm.scheduler import Association

NO_LIMIT: Final = "-1"
_NAME: Final = re.compile(r"[a-z0-9_][a-z0-9_.\-]{0,62}", re.IGNORECASE | re.ASCII)
_VALUE: Final = re.compile(r"-?[0-9][0-9:\-]{0,20}|parent", re.ASCII)
_WORDS: Final = re.compile(r"[A-Za-z0-9_.,\-]{1,200}", re.ASCII)
_TRES: Final = frozenset({"GrpTRES", "GrpTRESMins", "MaxTRES"})
# What sacctmgr prints, by what it wants to be told.
_SET_NAMES: Final = {"GrpSubmit": "GrpSubmitJobs", "MaxSubmit": "MaxSubmitJobs"}
_PLAIN: Final = ("GrpJobs", "GrpSubmit", "MaxJobs", "MaxSubmit", "MaxWall")


def argv_add_account(account: str, parent: str, cluster: str) -> list[str]:
    """Return the arguments that make an account below another (empty: the root)."""
    words = [_name(account), f"cluster={_name(cluster)}"]
    above = [f"parent={_name(parent)}"] if parent else []
    return ["sacctmgr", "-i", "add", "account", *words, *above]


def argv_add_user(user: str, account: str, cluster: str) -> list[str]:
    """Return the arguments that let a user into an account."""
    where = [f"account={_name(account)}", f"cluster={_name(cluster)}"]
    return ["sacctmgr", "-i", "add", "user", _name(user), *where]


def argv_remove_user(user: str, account: str, cluster: str) -> list[str]:
    """Return the arguments that take a user out of one account, and no other."""
    where = [f"name={_name(user)}", f"account={_name(account)}"]
    return [
        *("sacctmgr", "-i", "delete", "user", "where"),
        *where,
        f"cluster={_name(cluster)}",
    ]


def argv_set(
    account: str, user: str, cluster: str, limits: Mapping[str, str]
) -> list[str]:
    """Return the arguments that set limits of an account, or of one user in it."""
    entity = "user" if user else "account"
    who = (
        [f"name={_name(user)}", f"account={_name(account)}"]
        if user
        else [f"name={_name(account)}"]
    )
    return [
        *("sacctmgr", "-i", "modify", entity, "where", *who),
        f"cluster={_name(cluster)}",
        "set",
        *(_assignment(key, value) for key, value in sorted(limits.items())),
    ]


def limits_of(line: Association) -> dict[str, str]:
    """Return the limits of a line by their keys, each resource by itself."""
    found: dict[str, str] = {}
    for name in _TRES:
        for item in filter(None, line.limits.get(name, "").split(",")):
            resource, _, value = item.partition("=")
            found[f"{name}:{resource}"] = value
    found |= {name: line.limits[name] for name in _PLAIN if name in line.limits}
    if line.fair_share:
        found["Fairshare"] = line.fair_share
    return found


def _assignment(key: str, value: str) -> str:
    name, _, resource = key.partition(":")
    known = {*_TRES, *_PLAIN, "Fairshare", "QOS", "DefaultQOS"}
    if name not in known or (name in _TRES) is not bool(resource):
        raise InvalidError(f"{key!r} is no limit of Slurm's.", "See sacctmgr(1).")
    pattern = _WORDS if name in ("QOS", "DefaultQOS") else _VALUE
    if not pattern.fullmatch(value):
        raise InvalidError(f"{value!r} is no value of {key}.", "Give a number.")
    if resource:
        return f"{name}={_resource(resource)}={value}"
    return f"{_SET_NAMES.get(name, name)}={value}"


def _resource(text: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_/:.\-]{0,60}", text, re.ASCII):
        raise InvalidError(f"{text!r} is no resource.", "Write gres/gpu or node.")
    return text


def _name(text: str) -> str:
    """Return a name that sacctmgr can't take for an option, a list or a condition."""
    if not _NAME.fullmatch(text):
        raise InvalidError(
            f"{text[:80]!r} can't be a name in Slurm.",
            "Use letters, digits, points, dashes and underscores.",
        )
    return text
