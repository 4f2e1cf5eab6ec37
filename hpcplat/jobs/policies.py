"""What a job wants done about its checkpoints, its failures and its end."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Field

from hpcplat.jobs.fields import Count, CountFromZero, Duration, PathText, Record

Metric = Annotated[str, Field(pattern=r"^-?[A-Za-z0-9_./-]+$", max_length=250)]


class Checkpoint(Record):
    """How often, how many, and where."""

    every: Count | Literal["auto"] = Field(
        default="auto",
        description="Steps between checkpoints, or auto: from measured costs.",
    )
    keep_last: Count = Field(default=3, description="How many of the newest stay.")
    keep_every: Count | None = Field(
        default=None, description="Keep those of every so many steps for good."
    )
    best: Metric | None = Field(
        default=None,
        description="Keep the one with the least of a metric too; -NAME: the most.",
    )
    folder: PathText | None = Field(
        default=None, description="Where; the run folder's checkpoints/ if not given."
    )
    resume_from: PathText | None = Field(
        default=None, description="A checkpoint, or a folder of them, to start from."
    )


class Recovery(Record):
    """What happens when a node, a rank or the time limit ends a run early."""

    requeue: bool | None = Field(
        default=None,
        description="May Slurm run it again? Yes for train, no for command.",
    )
    max_failures: CountFromZero = Field(
        default=3,
        description="Failures without progress after which the job is stopped.",
    )
    warning: Duration = Field(
        default=timedelta(minutes=2),
        description="How long before the time limit the ranks get SIGUSR2.",
    )
    grace: Annotated[Duration, Field(le=timedelta(minutes=10))] = Field(
        default=timedelta(seconds=5), description="From SIGTERM to SIGKILL."
    )
    memory_copies_every: CountFromZero = Field(
        default=1,
        description="Steps between in-memory copies on another node; 0 for none.",
    )
    shrink: bool = Field(
        default=False,
        description="Go on with less data parallelism when no spare is left.",
    )
