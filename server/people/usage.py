"""What was used: GPU-hours and CPU-hours of each member, from accounting. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from hpcplat.slurm.scheduler import PastJob
from hpcplat.slurm.tres import gpu_count
from server.people.idle import Watch, idle
from server.people.records import UsageRow

Key = tuple[str, str, str]  # workspace, user, project
Held = tuple[datetime, datetime]  # from, to


@dataclass(slots=True)
class _Sum:
    asked: float = 0.0
    gpus: float = 0.0
    idle: float = 0.0
    untold: float = 0.0
    cpus: float = 0.0
    jobs: set[tuple[int, str]] = field(default_factory=set)
    starts: set[tuple[int, str, datetime]] = field(default_factory=set)


def report(
    past: Iterable[PastJob],
    since: datetime,
    until: datetime,
    workspaces: Mapping[str, str],
    price: float | None,
    watch: Callable[[PastJob], Watch],
) -> list[UsageRow]:
    """Return a row for each workspace, user and project; ``price`` is of a GPU-hour.

    Hours are those inside the period; attempts count each, so a job that was requeued
    pays for all of its starts. Those asked for are the GPUs times the time limit of
    each start inside the period. ``workspaces``: their names by account; an account
    that is no workspace keeps its own name. A project is Slurm's WCKey.
    """
    sums: dict[Key, _Sum] = {}
    for record in past:
        held = _held(record, since, until)
        if held is not None:
            workspace = workspaces.get(record.account, record.account)
            key = (workspace, record.user, record.wckey)
            _add(sums.setdefault(key, _Sum()), record, held, since)
            if gpu_count(record.allocated):
                _add_idle(sums[key], record, held, watch(record))
    return [_row(key, found, price) for key, found in sorted(sums.items())]


def _add(found: _Sum, record: PastJob, held: Held, since: datetime) -> None:
    hours = _length(held)
    found.gpus += hours * gpu_count(record.allocated)
    found.cpus += hours * record.allocated.get("cpu", 0)
    found.jobs.add((record.job_id, record.cluster))
    # A job that lost a node has a record for each size, all of one submission.
    start = (record.job_id, record.cluster, record.submitted)
    if record.started and record.started >= since and start not in found.starts:
        found.starts.add(start)
        found.asked += gpu_count(record.requested) * _limit_hours(record)


def _add_idle(found: _Sum, record: PastJob, held: Held, watch: Watch) -> None:
    unused, untold = idle(*held, gpu_count(record.allocated), watch)
    found.idle += unused
    found.untold += untold


def _row(key: Key, found: _Sum, price: float | None) -> UsageRow:
    workspace, user, project = key
    return UsageRow(
        workspace=workspace,
        user=user,
        project=project,
        jobs=len(found.jobs),
        gpu_hours_asked=round(found.asked, 4),
        gpu_hours=round(found.gpus, 4),
        gpu_hours_idle=round(found.idle, 4),
        gpu_hours_unknown=round(found.untold, 4),
        cpu_hours=round(found.cpus, 4),
        price=None if price is None else round(found.gpus * price, 2),
    )


def _limit_hours(record: PastJob) -> float:
    limit = record.time_limit
    return limit.total_seconds() / 3600 if limit else 0.0


def _held(record: PastJob, since: datetime, until: datetime) -> Held | None:
    """Return from when to when inside the period it had its nodes; None: never."""
    if record.started is None or not record.nodes:
        return None
    begin = max(record.started, since)
    end = min(record.ended or until, until)
    return (begin, end) if end > begin else None


def _length(held: Held) -> float:
    begin, end = held
    return (end - begin).total_seconds() / 3600
