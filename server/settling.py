"""What becomes of a submission of which nobody knows whether Slurm has it; pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from server.queries.submissions import Watched
from server.sightings import Told, number, past_number
from server.submission import Pace


@dataclass(frozen=True, slots=True)
class Settled:
    """What becomes of a submission in doubt."""

    step: Literal["wait", "found", "again", "unknown"]
    slurm_job_id: int = 0
    missed_at: datetime | None = None


def settle(
    watched: Watched,
    told: Told,
    pace: Pace,
    confirm: timedelta,
    has_accounting: bool,
    remembered: timedelta,
) -> Settled:
    """Decide on a submission of which nobody knows whether Slurm has it.

    ``remembered`` is for how long squeue surely shows a job (MinJobAge). It is sent
    again only if Slurm, asked after the sbatch was dead and its message settled, did
    not know the key, twice, in the queue and in accounting.
    """
    found = [number(record) for record in told.live.get(watched.key, ())]
    if not found and told.past:
        found = [past_number(record) for record in told.past.get(watched.key, ())]
    if found:
        return Settled("found", min(found))
    claimed = watched.claimed_at or told.asked_at
    if told.asked_at < dead(watched, pace, claimed) + pace.settles:
        return Settled("wait", missed_at=watched.missed_at)
    if told.past is None and told.asked_at - claimed > remembered:
        return Settled("wait" if has_accounting else "unknown")
    if watched.missed_at is None or told.asked_at - watched.missed_at < confirm:
        return Settled("wait", missed_at=watched.missed_at or told.asked_at)
    return Settled("again")


def dead(watched: Watched, pace: Pace, now: datetime) -> datetime:
    """Return since when (or from when on) no sbatch of it can be alive."""
    return watched.doubted_at or (watched.claimed_at or now) + pace.claim_lasts
