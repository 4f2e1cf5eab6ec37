"""Which run folders carry secret values still."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import delete
from sqlmodel import Session, col, select

from server.states import FINAL
from server.tables import Job, KeptSecret, User


@dataclass(frozen=True, slots=True)
class Kept:
    """A job that is over, whose run folder carries secrets; its Unix user's name."""

    job_id: str
    folder: str
    user: str


def note(session: Session, job_ids: Iterable[str]) -> None:
    """Write down that the run folders of these jobs carry secrets."""
    session.add_all(KeptSecret(job_id=job_id) for job_id in job_ids)


def of_ended(session: Session, cluster: str) -> Sequence[Kept]:
    """Return those of jobs that are over."""
    rows = session.exec(
        select(Job.id, Job.folder, User.name)
        .where(col(KeptSecret.job_id) == col(Job.id))
        .where(col(User.id) == col(Job.user_id))
        .where(col(Job.cluster) == cluster, col(Job.state).in_(FINAL))
    ).all()
    return [Kept(*row) for row in rows]


def gone(session: Session, job_ids: Sequence[str]) -> None:
    """Forget them: their values are wiped."""
    session.execute(delete(KeptSecret).where(col(KeptSecret.job_id).in_(job_ids)))
