"""What Slurm told in one round, sorted by the keys of our submissions; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from hpcplat.slurm.scheduler import LiveJob, PastJob
from server.ids import find_key
from server.judgement import Start, task_of
from server.queries.submissions import Watched


@dataclass(frozen=True, slots=True)
class Told:
    """What Slurm said in this round, by key; ``past`` None where it was silent."""

    asked_at: datetime
    live: Mapping[str, list[LiveJob]]
    past: Mapping[str, list[PastJob]] | None


class OpenStarts:
    """Starts that were seen, and whose end nobody has told yet.

    A requeue hides them from squeue: accounting must be asked, and may lag; but not for
    ever, it may never know.
    """

    MOST_QUESTIONS = 100

    def __init__(self) -> None:
        self._open: dict[int, dict[tuple[int, datetime], int]] = {}

    def note(self, submission_id: int, starts: Iterable[Start]) -> None:
        """Take in what a round told of a submission's starts."""
        known = self._open.setdefault(submission_id, {})
        for start in starts:
            name = start.task, start.started_at
            if start.ended_at is not None:
                known.pop(name, None)
            else:
                known.setdefault(name, 0)

    def are_hidden(self, submission_id: int, records: Iterable[LiveJob]) -> bool:
        """Tell whether one of them is not what squeue shows; counts the question."""
        shown = {(task_of(record), record.started) for record in records}
        known = self._open.get(submission_id, {})
        hidden = [
            name
            for name, questions in known.items()
            if name not in shown and questions < self.MOST_QUESTIONS
        ]
        for name in hidden:
            known[name] += 1
        return bool(hidden)

    def forget(self, submission_ids: Iterable[int]) -> None:
        """Drop submissions that are over."""
        for submission_id in submission_ids:
            self._open.pop(submission_id, None)


def number(record: LiveJob) -> int:
    """Return the number that sbatch answered: of the array, of the het job as a whole."""
    if record.array_job_id:
        return record.array_job_id
    root, plus, _ = record.address.partition("+")
    return int(root) if plus and root.isdecimal() else record.job_id


def by_key(
    records: Iterable[LiveJob], watched: Sequence[Watched]
) -> Mapping[str, list[LiveJob]]:
    """Sort the queue's records by key; by the job id where somebody took the key away.

    A job that came by way of sbatch may carry its owner's own comment instead. Numbers
    repeat: a job under ours that is another person's, or has another name, is not ours.
    """
    ours = {w.slurm_job_id: w for w in watched if w.slurm_job_id is not None}
    found: dict[str, list[LiveJob]] = {}
    for record in records:
        key = find_key(record.comment, record.name)
        if key is None:
            key = _key_of(record, ours.get(number(record)))
        if key is not None:
            found.setdefault(key, []).append(record)
    return found


def past_by_key(
    records: Iterable[PastJob], asked: Sequence[Watched]
) -> Mapping[str, list[PastJob]]:
    """Sort accounting's records by key: of the comment, of the name, by the job id.

    Accounting keeps the comment only where the site says so, and only at the end.
    """
    ours = {w.slurm_job_id: w for w in asked if w.slurm_job_id is not None}
    found: dict[str, list[PastJob]] = {}
    for record in records:
        key = find_key(record.comment, record.name)
        if key is None:
            key = _key_of(record, ours.get(past_number(record)))
        if key is not None:
            found.setdefault(key, []).append(record)
    return found


def _key_of(record: LiveJob | PastJob, watched: Watched | None) -> str | None:
    if watched is None or record.user != watched.user:
        return None
    # Accounting may have lost letters of the name that are not ASCII.
    same_name = record.name.isascii() and record.name == watched.name
    odd_name = not watched.name.isascii()
    is_ours = watched.kind == "sbatch" or same_name or odd_name
    return watched.key if is_ours else None


def past_number(record: PastJob) -> int:
    """Return the number that sbatch answered, from accounting's record."""
    root = re.split(r"[_+]", record.address, maxsplit=1)[0]
    return int(root) if root.isdecimal() else record.job_id
