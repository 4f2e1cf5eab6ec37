"""What the batch script tells the coordinator and the agents on their command lines."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcplat.runfolder import AttemptFolder, RunFolder


@dataclass(frozen=True, slots=True)
class Arguments:
    """The job's run folder, the attempt, and the index of an array's task.

    ``run`` is where this task writes: the job's own folder where there is no array.
    ``beside`` are the words after ``--``.
    """

    job: RunFolder
    attempt: int
    task: int | None
    beside: tuple[str, ...]

    @property
    def run(self) -> RunFolder:
        """The run folder of the task."""
        return self.job if self.task is None else self.job.task(self.task)

    @property
    def logs(self) -> AttemptFolder:
        """Where this attempt's logs go."""
        return self.run.attempt(self.attempt)


def parse(words: Sequence[str]) -> Arguments:
    """Return the command line as a record; ends the program if it is wrong."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("folder", type=Path, help="the job's run folder")
    parser.add_argument("--attempt", type=int, required=True)
    parser.add_argument("--task", type=int)
    own = list(itertools.takewhile(lambda word: word != "--", words))
    found = parser.parse_args(own)
    beside = tuple(words[len(own) + 1 :])  # what to start
    return Arguments(RunFolder(found.folder), found.attempt, found.task, beside)
