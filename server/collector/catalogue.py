"""Which runs there are to collect, and how each stands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

from sqlalchemy import or_
from sqlmodel import col, select

from hpcplat.runfolder import RunFolder
from hpcplat.tracking.layout import metrics_files
from server.database import Database
from server.states import FINAL
from server.tables import Job, Workspace

QUIET_SECONDS: Final = 600.0  # a folder without a service has ended after these


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """A job, or a task of an array, as the collector sees it.

    ``ended`` is Unix time in seconds, None while the job may still go on.
    """

    id: str
    workspace: str
    name: str
    state: str
    folder: Path
    created: datetime
    ended: float | None = None


class Catalogue(Protocol):
    """Where the collector learns of runs."""

    def runs(self, since: datetime) -> Iterable[TrackedRun]:
        """Return the runs that go on, and those that changed after ``since``."""


class DatabaseCatalogue:
    """The service's jobs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def runs(self, since: datetime) -> Iterator[TrackedRun]:
        """Return the runs that go on, and those that changed after ``since``."""
        wanted = (
            select(Job, Workspace.name)
            .join(Workspace, col(Workspace.id) == Job.workspace_id)
            .where(or_(col(Job.state).not_in(FINAL), col(Job.updated_at) >= since))
        )
        with self._database.read() as session:
            found = session.exec(wanted).all()
        for job, workspace in found:
            yield from _runs_of(job, workspace)


def _runs_of(job: Job, workspace: str) -> Iterator[TrackedRun]:
    if job.started_at is None:
        return  # nothing can have been logged
    folder = RunFolder(Path(job.folder))
    over = job.state in FINAL
    ended = (job.ended_at or job.updated_at).timestamp() if over else None
    tasks = sorted(folder.tasks.glob("*")) if job.tasks > 1 else []
    for path in tasks or [folder.root]:
        suffix = f"_{path.name}" if tasks else ""
        yield TrackedRun(
            job.id + suffix, workspace, job.name, job.state, path, job.created_at, ended
        )


class FolderCatalogue:
    """Run folders without a service: those right inside ``roots``, or roots."""

    def __init__(self, roots: Iterable[Path], workspace: str = "local") -> None:
        self._roots = tuple(roots)
        self._workspace = workspace

    def runs(self, since: datetime) -> Iterator[TrackedRun]:
        """Return the runs whose metrics grew after ``since``."""
        oldest = since.timestamp() - 2 * QUIET_SECONDS  # to see them end
        for root in self._roots:
            for path in [root, *root.glob("*/")]:
                files = [file.path.stat() for file in metrics_files(path)]
                newest = max((found.st_mtime for found in files), default=0.0)
                if files and newest >= oldest:
                    yield self._run(path, newest)

    def _run(self, path: Path, newest: float) -> TrackedRun:
        now = datetime.now(UTC).timestamp()
        ended = newest if now - newest > QUIET_SECONDS else None
        state = "RUNNING" if ended is None else "ENDED"
        created = datetime.fromtimestamp(path.stat().st_mtime, UTC)
        name = path.resolve().name
        return TrackedRun(name, self._workspace, name, state, path, created, ended)
