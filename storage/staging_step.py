"""The batch script's step before the ranks: a job's dataset to the node's own disk.

``python -I -m storage.staging_step RUN --attempt N [--task T] --disk FOLDER`` on each
node. A copy that cannot be made is no reason to stop, since the ranks can read the
dataset where it is; damage is: then the job ends, and its events say what is damaged.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from pathlib import Path

from hpcplat import entrypoint
from hpcplat.allocation import node_place
from hpcplat.datasets.damage import DamagedError
from hpcplat.datasets.store import locate
from hpcplat.errors import HpcplatError, NotFoundError
from hpcplat.eventlog import EventKind
from hpcplat.jobs import JobSpec, read_spec
from hpcplat.jobs.staging import Staging
from hpcplat.launchplan import read_plan
from hpcplat.runfolder import RunFolder
from hpcplat.settings import DATASETS
from storage import staging
from storage.staging_events import StagingEvents


def main(words: Sequence[str]) -> int:
    """Bring the dataset to this node; returns the step's exit code."""
    given = _parse(words)
    job = RunFolder(given.folder)
    own = job if given.task is None else job.task(given.task)
    spec = read_spec(job.spec)
    if spec.data is None or spec.staging is None:
        return 0
    events = StagingEvents(spec.data, own, given.attempt, _node())
    try:
        _stage(spec.data, _root(spec, job), spec.staging, given.disk, events)
    except DamagedError as error:
        _end(events, error)
        return 1
    except HpcplatError as error:
        what = f"{spec.data} is not staged on {events.node}, and read where it is:"
        events.tell("data-not-staged", f"{what} {error}")
    return 0


def _parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("folder", type=Path, help="the job's run folder")
    parser.add_argument("--attempt", type=int, required=True)
    parser.add_argument("--task", type=int)
    parser.add_argument("--disk", type=Path, required=True)
    return parser.parse_args(words)


def _node() -> str:
    try:
        return node_place().node
    except NotFoundError:
        return os.uname().nodename


def _root(spec: JobSpec, job: RunFolder) -> Path | None:
    """Return the folder of all datasets, as the ranks will be told it."""
    data = spec.settings.get("data")
    named = data.get("root") if isinstance(data, dict) else None
    root = named or read_plan(job.plan).variables.get(DATASETS)
    return None if root is None else Path(str(root))


def _stage(
    data: str, root: Path | None, wanted: Staging, disk: Path, events: StagingEvents
) -> None:
    begun = time.monotonic()
    limits = staging.Limits(wanted.size * 2**20, wanted.age.total_seconds())
    threads = len(os.sched_getaffinity(0))
    progress: list[int] = []

    def count(done: int, total: int) -> None:
        progress.append(done)
        events(done, total)

    try:
        local = staging.own_folder(disk)
        staging.stage(locate(data, root), local, limits, threads, count)
    except OSError as error:  # a folder that cannot be written
        raise NotFoundError(f"{disk}: {error.strerror}.") from error
    if not progress:
        waited = time.monotonic() - begun
        what = f"{data} is on {events.node} already (asked for {waited:.1f} s)."
        events.tell("data-staged", what)


def _end(events: StagingEvents, error: DamagedError) -> None:
    """Let the batch script stop, and let the job's events say why."""
    reason = f"{events.version} cannot be staged on {events.node}: {error}"
    mark = events.folder.attempt(events.attempt).not_staged
    mark.write_text(f"{reason}\n")
    events.tell(EventKind.ATTEMPT_ENDED, reason, code=1, reason=reason)


if __name__ == "__main__":
    entrypoint.run(main)
