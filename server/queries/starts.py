"""Starts of jobs in a period, with where each left what happened in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import or_
from sqlalchemy import select as sa_select
from sqlmodel import Session, col

from server.tables import Attempt, Job, Submission


@dataclass(frozen=True, slots=True)
class Start:
    """One start; ``task`` is Slurm's index in the array (-1: none), ``offset`` a part's."""

    slurm_job_id: int
    task: int
    offset: int
    number: int
    started_at: datetime
    nodes: Sequence[str]
    folder: str
    spec: Mapping[str, Any]


def starts_since(session: Session, cluster: str, since: datetime) -> Sequence[Start]:
    """Return the starts on a cluster that had not ended by then, oldest first."""
    is_in = or_(col(Attempt.ended_at).is_(None), col(Attempt.ended_at) >= since)
    rows = session.execute(
        sa_select(
            col(Attempt.slurm_job_id),
            col(Attempt.task),
            col(Submission.offset),
            col(Attempt.number),
            col(Attempt.started_at),
            col(Attempt.nodes),
            col(Job.folder),
            col(Job.spec),
        )
        .join(Job, col(Job.id) == col(Attempt.job_id))
        .join(Submission, col(Submission.id) == col(Attempt.submission_id))
        .where(col(Attempt.cluster) == cluster, is_in, col(Job.gpus) > 0)
        .order_by(col(Attempt.started_at))
    )
    return [Start(*row) for row in rows]
