"""Quotas in our words and in Slurm's, and what differs between the two."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from hpcplat.errors import InvalidError
from hpcplat.quantities import format_duration, parse_duration, parse_limit
from hpcplat.slurm import sacctmgr_writes as writes
from hpcplat.slurm.scheduler import Association

# Ours: Slurm's of a whole workspace, Slurm's of a member.
NAMES: Final[Mapping[str, tuple[str, str]]] = {
    "gpus": ("GrpTRES:gres/gpu", "GrpTRES:gres/gpu"),
    "gpu_hours": ("GrpTRESMins:gres/gpu", "GrpTRESMins:gres/gpu"),
    "nodes": ("GrpTRES:node", "GrpTRES:node"),
    "running_jobs": ("GrpJobs", "MaxJobs"),
    "submitted_jobs": ("GrpSubmit", "MaxSubmit"),
    "longest_time": ("MaxWall", "MaxWall"),
    "share": ("Fairshare", "Fairshare"),
    "qos": ("QOS", "QOS"),
}
_QOS: Final = re.compile(r"[a-z0-9_.\-]{1,40}(,[a-z0-9_.\-]{1,40}){0,19}", re.ASCII)
_TYPED: Final = re.compile(r"gpus:(?P<type>[a-z0-9_.\-]{1,40})", re.ASCII)
_MOST: Final = 10**9
DEFAULT_SHARE: Final = "1"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A line that the workspaces ask for: an account, or a user in one."""

    account: str
    user: str = ""
    parent: str = ""
    limits: Mapping[str, str] | None = None  # Slurm's keys; None: nobody set any


@dataclass(frozen=True, slots=True)
class Difference:
    """What differs between us and Slurm, and the command that would make Slurm follow.

    ``argv`` is empty where only we can follow (adopt what Slurm has).
    """

    what: str
    account: str
    user: str
    ours: str
    slurms: str
    argv: tuple[str, ...] = ()


def checked(limits: Mapping[str, str]) -> dict[str, str]:
    """Return limits in their one spelling; InvalidError for what can't be one."""
    return {name: _value(name, value) for name, value in limits.items()}


def in_slurms(limits: Mapping[str, str], *, of_member: bool) -> dict[str, str]:
    """Return our limits in Slurm's keys and units."""
    found: dict[str, str] = {}
    for name, value in checked(limits).items():
        typed = _TYPED.fullmatch(name)
        key = f"GrpTRES:gres/gpu:{typed['type']}" if typed else NAMES[name][of_member]
        found[key] = str(int(value) * 60) if name == "gpu_hours" else value
    return found


def in_ours(limits: Mapping[str, str], *, of_member: bool) -> dict[str, str]:
    """Return Slurm's limits in our words; those that we have no word for are left."""
    words = {slurms[of_member]: name for name, slurms in NAMES.items()}
    found: dict[str, str] = {}
    for key, value in limits.items():
        prefix = "GrpTRES:gres/gpu:"
        name = (
            f"gpus:{key[len(prefix) :]}" if key.startswith(prefix) else words.get(key)
        )
        # Which QOS a line has of its own, and which from above, Slurm does not tell.
        if name in (None, "qos") or (name == "share" and value == DEFAULT_SHARE):
            continue
        assert name is not None
        if name == "gpu_hours":
            found[name] = str(int(value) // 60)
        elif name == "longest_time":
            found[name] = _one_spelling(value)
        else:
            found[name] = value
    return found


def above(limits: Mapping[str, str], parent: Mapping[str, str]) -> str:
    """Return the first limit that is above the parent's; the empty text if none is."""
    for name, value in checked(limits).items():
        ceiling = parent.get(name)
        if name != "share" and ceiling is not None and _is_more(name, value, ceiling):
            return name
    return ""


def _is_more(name: str, value: str, ceiling: str) -> bool:
    if name == "qos":
        return not set(value.split(",")) <= set(ceiling.split(","))
    return _size(value) > _size(ceiling)


def differences(
    wanted: Sequence[Wanted], lines: Sequence[Association], cluster: str
) -> list[Difference]:
    """Return what differs, both ways; accounts before the users in them."""
    there = {(each.account, each.user): each for each in lines if not each.partition}
    found: list[Difference] = []
    for each in sorted(wanted, key=lambda w: bool(w.user)):
        line = there.get((each.account, each.user))
        if line is None:
            found.append(_missing(each, cluster))
        if each.limits is not None:
            found.extend(_limit_differences(each, line, cluster))
    ours = {(each.account, each.user) for each in wanted}
    found.extend(
        _unknown(line, cluster, ours)
        for key, line in there.items()
        if key not in ours and line.account != "root"
    )
    return found


def _missing(each: Wanted, cluster: str) -> Difference:
    if each.user:
        what = f"{each.user} is not in account {each.account}"
        argv = writes.argv_add_user(each.user, each.account, cluster)
    else:
        what = f"account {each.account} is not there"
        argv = writes.argv_add_account(each.account, each.parent, cluster)
    return Difference(what, each.account, each.user, "yes", "no", tuple(argv))


def _unknown(line: Association, cluster: str, ours: set[tuple[str, str]]) -> Difference:
    if not line.user:
        what = f"account {line.account} is no workspace"
        return Difference(what, line.account, "", "no", "yes")
    what = f"{line.user} is in account {line.account} and no member"
    is_ours = (line.account, "") in ours
    argv = (
        tuple(writes.argv_remove_user(line.user, line.account, cluster))
        if is_ours
        else ()
    )
    return Difference(what, line.account, line.user, "no", "yes", argv)


def _limit_differences(
    each: Wanted, line: Association | None, cluster: str
) -> list[Difference]:
    ours = dict(each.limits or {})
    slurms = {} if line is None else _comparable(line, of_member=bool(each.user))
    qos = ours.pop("QOS", "")
    found = list(_qos_difference(each, line, cluster, qos)) if qos else []
    for key in sorted(ours.keys() | slurms.keys()):
        mine, theirs = ours.get(key, ""), slurms.get(key, "")
        if mine == theirs:
            continue
        default = DEFAULT_SHARE if key == "Fairshare" else writes.NO_LIMIT
        argv = writes.argv_set(each.account, each.user, cluster, {key: mine or default})
        owner = f"{each.user} in {each.account}" if each.user else each.account
        what = f"{key} of {owner}"
        found.append(
            Difference(what, each.account, each.user, mine, theirs, tuple(argv))
        )
    return found


def _qos_difference(
    each: Wanted, line: Association | None, cluster: str, qos: str
) -> Iterator[Difference]:
    """Yield the difference in the QOS that jobs may choose, where we name any.

    The first is the default: Slurm refuses a job whose default is not in the list.
    """
    named = qos.split(",")
    there = line.qos if line is not None else ()
    if set(there) == set(named):
        return
    values = {"QOS": qos, "DefaultQOS": named[0]}
    argv = writes.argv_set(each.account, each.user, cluster, values)
    owner = f"{each.user} in {each.account}" if each.user else each.account
    yield Difference(
        f"QOS of {owner}", each.account, each.user, qos, ",".join(there), tuple(argv)
    )


def _comparable(line: Association, *, of_member: bool) -> dict[str, str]:
    """Return what of a line we have words for, spelled as ours are."""
    ours = in_ours(writes.limits_of(line), of_member=of_member)
    return in_slurms(ours, of_member=of_member)


def _value(name: str, value: str) -> str:
    if name == "longest_time":
        return format_duration(parse_duration(value))
    if name == "qos":
        if not _QOS.fullmatch(value):
            raise InvalidError(
                f"{value!r} is no list of QOS.", "Write them as normal,spot."
            )
        return ",".join(dict.fromkeys(value.split(",")))
    if name not in NAMES and not _TYPED.fullmatch(name):
        known = ", ".join([*NAMES, "gpus:TYPE"])
        raise InvalidError(f"{name!r} is no quota.", f"Use: {known}.")
    if not re.fullmatch(r"[0-9]{1,9}", value, re.ASCII) or int(value) > _MOST:
        raise InvalidError(f"{value!r} is no number of {name}.", "Give one, such as 8.")
    return str(int(value))


def _one_spelling(value: str) -> str:
    limit = parse_limit(value)
    return format_duration(limit) if limit is not None else value


def _size(value: str) -> float:
    if value.isdecimal():
        return float(value)
    limit: timedelta | None = parse_limit(value)
    return limit.total_seconds() if limit is not None else float("inf")
