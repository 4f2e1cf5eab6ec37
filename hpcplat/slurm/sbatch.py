"""sbatch: hand in a batch script, or ask when it would start."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from hpcplat.slurm.answers import UnreadableError, clip
from hpcplat.slurm.environment import account_of
from hpcplat.slurm.scheduler import Submission, SubmittedJob

_PARSABLE: Final = re.compile(
    r"(?P<id>[1-9][0-9]{0,9})(?:;(?P<cluster>[A-Za-z0-9_.\-]+))?\n?"
)
# 25.11 and 26.05 print a stray letter after the time.
_ESTIMATE: Final = re.compile(
    r"^sbatch: Job [0-9]+ to start at (?P<epoch>[0-9]{9,11})\b", re.MULTILINE
)
# Slurm answers "in a year" where it can't tell (a job without a time limit before).
_FARTHEST: Final = timedelta(days=360)


def argv(submission: Submission) -> list[str]:
    """Return the arguments; the script goes to standard input."""
    words = ["sbatch", "--parsable", *_common(submission)]
    return [*words, *submission.options]


def argv_estimate(submission: Submission) -> list[str]:
    """Return the arguments that only ask when the job would start."""
    return ["sbatch", "--test-only", *_common(submission), *submission.options]


def _common(submission: Submission) -> list[str]:
    words = [f"--chdir={submission.folder}"]
    if submission.user is not None:
        group = account_of(submission.user).pw_gid
        words += [f"--uid={submission.user}", f"--gid={group}"]
    return words


def parse(stdout: str) -> SubmittedJob:
    """Return the job from ``id`` or ``id;cluster``, and from nothing else.

    A wrapper that adds text makes the answer unreadable: what looks like an id in
    it could be anything.
    """
    match = _PARSABLE.fullmatch(stdout)
    if match is None:
        raise UnreadableError(f"sbatch answered {clip(stdout)} instead of a job id.")
    return SubmittedJob(int(match["id"]), match["cluster"] or "")


def parse_estimate(stderr: str, now: datetime) -> datetime | None:
    """Return the start from what ``--test-only`` prints under SLURM_TIME_FORMAT=%s.

    None where Slurm can't tell: it says "in a year" then.
    """
    match = _ESTIMATE.search(stderr)
    if match is None:
        raise UnreadableError(f"sbatch --test-only answered {clip(stderr)}.")
    start = datetime.fromtimestamp(int(match["epoch"]), UTC)
    return start if start - now < _FARTHEST else None
