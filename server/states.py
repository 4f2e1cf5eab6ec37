"""The words for where things stand: of jobs, of submissions, of members."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class State(StrEnum):
    """Where a job stands; an attempt keeps Slurm's own word beside it."""

    QUEUED = "QUEUED"  # written down, not yet handed to Slurm
    SUBMITTING = "SUBMITTING"  # being handed over, or in doubt whether it was
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


FINAL = frozenset({State.COMPLETED, State.FAILED, State.CANCELLED})
LIVE = frozenset(State) - FINAL


class Sending(StrEnum):
    """Where one submission (one sbatch) stands."""

    QUEUED = "QUEUED"
    CLAIMED = "CLAIMED"  # a service is about to run sbatch, or did and died
    DOUBTFUL = "DOUBTFUL"  # sbatch ended without a clear answer
    SENT = "SENT"  # Slurm has it, under slurm_job_id
    REFUSED = "REFUSED"
    WITHDRAWN = "WITHDRAWN"  # cancelled before Slurm had it


class Role(StrEnum):
    """What a member may do in a workspace."""

    VIEWER = "viewer"
    DEVELOPER = "developer"
    OWNER = "owner"


# The kind of jobs that somebody's own sbatch submitted.
ADOPTED: Final = "sbatch"
