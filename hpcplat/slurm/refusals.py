"""What Slurm's error words mean: a refusal, an outage, or a doubt."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from hpcplat.errors import (
    ConflictError,
    ForbiddenError,
    HpcplatError,
    InvalidError,
    NotFoundError,
    UnavailableError,
)
from hpcplat.processes import Completed
from hpcplat.slurm.scheduler import SubmissionDoubtError


class Topic(StrEnum):
    """What a refusal is about, so that the remedy can name what there is."""

    PARTITION = "partition"
    ACCOUNT = "account"
    QOS = "qos"
    NODES = "nodes"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Slurm's words for a refusal (a part of the line), our error, the remedy."""

    words: str
    error: type[HpcplatError]
    remedy: str
    topic: Topic | None = None


# Slurm's messages stand in its src/common/slurm_errno.c; sbatch's own in sbatch.
TABLE: Final[tuple[Refusal, ...]] = (
    Refusal(
        "Invalid partition name specified",
        InvalidError,
        "Choose a partition that there is.",
        Topic.PARTITION,
    ),
    Refusal(
        "No partition specified or system default partition",
        InvalidError,
        "Name a partition.",
        Topic.PARTITION,
    ),
    Refusal(
        "User's group not permitted to use this partition",
        ForbiddenError,
        "Choose a partition that is open to you.",
        Topic.PARTITION,
    ),
    Refusal(
        "Invalid account or account/partition combination",
        InvalidError,
        "Choose an account that you belong to.",
        Topic.ACCOUNT,
    ),
    Refusal(
        "Invalid qos specification",
        InvalidError,
        "Choose a QOS that your account may use.",
        Topic.QOS,
    ),
    Refusal(
        "Requested node configuration is not available",
        InvalidError,
        "Ask for what a node of the partition has.",
        Topic.NODES,
    ),
    Refusal(
        "Invalid generic resource (gres) specification",
        InvalidError,
        "Ask for GPUs as the site spells them.",
        Topic.NODES,
    ),
    Refusal(
        "Node count specification invalid",
        InvalidError,
        "Ask for fewer nodes.",
        Topic.NODES,
    ),
    Refusal(
        "More processors requested than permitted",
        InvalidError,
        "Ask for fewer CPUs.",
        Topic.NODES,
    ),
    Refusal("Requested time limit is invalid", InvalidError, "Ask for a shorter time."),
    Refusal(
        "Invalid job array specification",
        InvalidError,
        "Keep array indexes below MaxArraySize (scontrol show config).",
    ),
    Refusal(
        "Job dependency problem",
        InvalidError,
        "Depend on a job that Slurm still knows.",
    ),
    Refusal(
        "Job violates accounting/QOS policy",
        ForbiddenError,
        "Ask for less, or wait until jobs of yours have ended.",
    ),
    Refusal(
        "Access/permission denied",
        ForbiddenError,
        "Act as the job's owner or as a Slurm operator.",
    ),
    Refusal(
        "Invalid user id",
        ForbiddenError,
        "Act as the job's owner or as a Slurm operator.",
    ),
    Refusal(
        "Invalid job id",
        NotFoundError,
        "See squeue and sacct for the jobs that there are.",
    ),
    Refusal("Invalid node name specified", NotFoundError, "See sinfo for the nodes."),
    Refusal(
        "Job is pending execution", ConflictError, "It is in the queue already: wait."
    ),
    Refusal(
        "Job is no longer pending execution",
        ConflictError,
        "Only a pending job can be changed like this.",
    ),
    Refusal(
        "Job/step already completing or completed",
        ConflictError,
        "It has ended; submit it anew.",
    ),
    Refusal("Job has already finished", ConflictError, "It has ended; submit it anew."),
    Refusal(
        "Requested operation is presently disabled",
        ConflictError,
        "The job or the site does not allow it (was it sent with --no-requeue?).",
    ),
    Refusal(
        "Job can not be altered now, try again later", ConflictError, "Try again later."
    ),
    Refusal(
        "MaxJobCount limit reached",
        UnavailableError,
        "Wait until the queue is shorter.",
    ),
)

# The request did not reach the controller: nothing has happened, surely.
_UNREACHED: Final = (
    "Unable to contact slurm controller (connect failure)",
    "Could not establish a configuration source",
    "Unable to process configuration file",
    "Connection refused",
    "No route to host",
    "Network is unreachable",
    "Rate limit exceeded",
    "Munge encode failed",
)
# The request may have reached it, only its answer did not reach us.
_CUT_OFF: Final = (
    "Unable to contact slurm controller",
    "Zero Bytes were transmitted",
    "Socket timed out",
    "Connection reset",
    "Connection timed out",
    "Connection rejected",
    "Broken pipe",
    "Communication connection failure",
    "Communication shutdown failure",
    "Message send failure",
    "Message receive failure",
    "Unexpected message received",
    "Unexpected missing socket",
    "Insane message length",
    "Header lengths are longer",
    "Incompatible versions",
    "authentication error",
    "standby mode",
    "Process is shutting down",
    "Problem talking to the database",
    "Interrupted system call",
    "Input/output error",
    "Operation now in progress",
    "Resource temporarily unavailable",
)
_PREFIX: Final = re.compile(
    r"^(?:\S*/)?(?:s[a-z]+: )?(?:error: |fatal: )?"
    r"(?:Batch job submission failed: |allocation failure: |slurm_\w+ error: )*"
)
# How sbatch speaks when it, or the controller, has refused.
_REFUSED: Final = re.compile(
    r"^(?:(?:\S*/)?sbatch: (?:error: |fatal: |(?:unrecognized|invalid) option |option )"
    r"|allocation failure: )",
    re.MULTILINE,
)
_WATCH: Final = "See whether Slurm is up (scontrol ping), then try again."


def words_of(done: Completed) -> str:
    """Return Slurm's own words on one line, without the programs' prefixes."""
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    words = [_PREFIX.sub("", line).strip().rstrip(".") for line in lines]
    told = dict.fromkeys(word for word in words if word)
    return "; ".join(told)[:300] or f"exit status {done.status}"


def find(words: str) -> Refusal | None:
    """Return the row of the table whose words stand in these, if any."""
    for row in TABLE:
        if row.words in words:
            return row
    return None


def error_of(done: Completed, otherwise: type[HpcplatError]) -> HpcplatError:
    """Return the error for a command that failed.

    ``otherwise`` is raised for words that no table holds: UnavailableError for
    questions, InvalidError for orders.
    """
    words = words_of(done)
    row = find(words)
    if row is not None:
        return row.error(f"Slurm refused: {words}.", row.remedy)
    if done.status < 0 or any(part in words for part in (*_UNREACHED, *_CUT_OFF)):
        return UnavailableError(f"{_program(done)}: {words}.", _WATCH)
    return otherwise(f"{_program(done)}: {words}.", "Mend what Slurm names.")


def submission_error(done: Completed) -> HpcplatError:
    """Return the error for an sbatch that failed: refused, unreached or doubtful.

    Only words that are known to come from a refusal, or from a connection that
    never was, count as certain. All else is a doubt.
    """
    words = words_of(done)
    if done.status > 0 and any(part in words for part in _UNREACHED):
        return UnavailableError(f"sbatch: {words}.", _WATCH)
    row = find(words)
    certain = done.status > 0 and not done.stdout.strip()
    if certain and row is not None:
        return row.error(f"Slurm refused the job: {words}.", row.remedy)
    # A site's submit filter says "Unspecified error" too, but after its own words.
    cut_off = words == "Unspecified error" or any(part in words for part in _CUT_OFF)
    if certain and not cut_off and _REFUSED.search(done.stderr):
        return InvalidError(f"Slurm refused the job: {words}.", "Mend what it names.")
    return doubt(f"sbatch ended with {words}")


def doubt(what: str) -> SubmissionDoubtError:
    """Return the error for a submission that may have succeeded."""
    return SubmissionDoubtError(
        f"{what}: Slurm may have taken the job.",
        "Look for it in squeue and sacct before sending it again.",
    )


def _program(done: Completed) -> str:
    return done.argv[0].rsplit("/", 1)[-1]
