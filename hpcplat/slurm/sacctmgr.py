"""sacctmgr: the associations and the qualities of service, with their limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from hpcplat.slurm.answers import UnreadableError, clip, names, parse_count, read
from hpcplat.slurm.scheduler import Association, Qos

# Names of sacctmgr's format that 22.05 to 26.05 all know, beside the limit's own.
_ASSOCIATION_LIMITS: Final = (
    "GrpJobs",
    "GrpSubmit",
    "GrpTRES",
    "GrpTRESMins",
    "GrpTRESRunMins",
    "GrpWall",
    "MaxJobs",
    "MaxSubmit",
    "MaxTRES",
    "MaxTRESMins",
    "MaxWall",
)
_QOS_LIMITS: Final = (
    "GrpJobs",
    "GrpSubmit",
    "GrpTRES",
    "GrpTRESMins",
    "GrpTRESRunMins",
    "GrpWall",
    "MaxJobsPU",
    "MaxSubmitPU",
    "MaxTRESPU",
    "MaxTRES",
    "MaxTRESMins",
    "MaxWall",
)
ASSOCIATION_COLUMNS: Final = (
    "Cluster",
    "Account",
    "User",
    "Partition",
    "ParentName",
    "Share",
    "QOS",
    "DefaultQOS",
    *_ASSOCIATION_LIMITS,
)
QOS_COLUMNS: Final = (
    "Name",
    "Priority",
    "Preempt",
    "PreemptMode",
    "Flags",
    *_QOS_LIMITS,
)


def argv_associations(cluster: str) -> list[str]:
    """Return the arguments that print the associations of a cluster."""
    columns = ",".join(ASSOCIATION_COLUMNS)
    return [*_show("associations"), f"cluster={cluster}", f"format={columns}"]


def argv_qos() -> list[str]:
    """Return the arguments that print every quality of service."""
    return [*_show("qos"), f"format={','.join(QOS_COLUMNS)}"]


def argv_clusters() -> list[str]:
    """Return the arguments of the cheapest question to the accounting database."""
    return [*_show("cluster"), "format=Cluster"]


def _show(entity: str) -> list[str]:
    return ["sacctmgr", "--readonly", "--noheader", "--parsable2", "show", entity]


def parse_associations(stdout: str) -> tuple[Association, ...]:
    """Return the associations. Raises UnreadableError unless every line is whole."""
    return tuple(
        read(_association, line) for line in _lines(stdout, len(ASSOCIATION_COLUMNS))
    )


def parse_qos(stdout: str) -> tuple[Qos, ...]:
    """Return the qualities of service, or raises UnreadableError."""
    return tuple(read(_qos, line) for line in _lines(stdout, len(QOS_COLUMNS)))


def _lines(stdout: str, columns: int) -> Iterator[list[str]]:
    for line in stdout.splitlines():
        fields = line.split("|")
        if len(fields) != columns:
            raise UnreadableError(
                f"sacctmgr gave {len(fields)} fields instead of {columns}: {clip(line)}."
            )
        yield fields


def _association(row: list[str]) -> Association:
    field = dict(zip(ASSOCIATION_COLUMNS, row, strict=True))
    return Association(
        cluster=field["Cluster"],
        account=field["Account"],
        user=field["User"],
        partition=field["Partition"],
        fair_share=field["Share"],
        limits=_limits(field, _ASSOCIATION_LIMITS),
        qos=names(field["QOS"]),
        default_qos=field["DefaultQOS"],
        parent=field["ParentName"],
    )


def _qos(row: list[str]) -> Qos:
    field = dict(zip(QOS_COLUMNS, row, strict=True))
    return Qos(
        name=field["Name"],
        priority=parse_count(field["Priority"]),
        preempts=names(field["Preempt"]),
        preempt_mode=field["PreemptMode"],
        flags=frozenset(names(field["Flags"])),
        limits=_limits(field, _QOS_LIMITS),
    )


def _limits(field: Mapping[str, str], known: tuple[str, ...]) -> Mapping[str, str]:
    return {name: field[name] for name in known if field[name]}
