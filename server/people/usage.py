"""What was used: GPU-hours and CPU-hours of each member, from accounting. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from hpcplat.slurm.scheduler import PastJob
from hpcplat.slurm.tres import gpu_count
from server.people.records import UsageRow


def report(
    past: Iterable[PastJob],
    since: datetime,
    until: datetime,
    workspaces: Mapping[str, str],
    price: float | None,
) -> list[UsageRow]:
    """Return a row for each workspace and user; ``price`` is of a GPU-hour.

    Hours are those inside the period; attempts count each, so a job that was requeued
    pays for all of its starts. ``workspaces``: their names by account; an account that
    is no workspace keeps its own name.
    """
    sums: dict[tuple[str, str], list[float]] = {}
    jobs: dict[tuple[str, str], set[tuple[int, str]]] = {}
    for record in past:
        hours = _hours(record, since, until)
        if hours <= 0:
            continue
        key = (workspaces.get(record.account, record.account), record.user)
        row = sums.setdefault(key, [0.0, 0.0])
        row[0] += hours * gpu_count(record.allocated)
        row[1] += hours * record.allocated.get("cpu", 0)
        jobs.setdefault(key, set()).add((record.job_id, record.cluster))
    return [
        UsageRow(
            workspace=workspace,
            user=user,
            jobs=len(jobs[workspace, user]),
            gpu_hours=round(gpus, 4),
            cpu_hours=round(cpus, 4),
            price=None if price is None else round(gpus * price, 2),
        )
        for (workspace, user), (gpus, cpus) in sorted(sums.items())
    ]


def _hours(record: PastJob, since: datetime, until: datetime) -> float:
    if record.started is None or not record.nodes:
        return 0.0
    begin = max(record.started, since)
    end = min(record.ended or until, until)
    return max((end - begin).total_seconds(), 0.0) / 3600
