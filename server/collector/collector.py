"""The collector's loop: from run folders to Aim, a little of each run in turn."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from hpcplat import eventlog
from hpcplat.errors import HpcplatError
from hpcplat.runfolder import RunFolder
from hpcplat.tracking.curves import FAILURES
from hpcplat.tracking.layout import MAIN, MetricsFile, media_folder, metrics_files
from hpcplat.tracking.reader import newest_before, read_chunk
from server.collector.aimrun import AimRun
from server.collector.catalogue import Catalogue, TrackedRun
from server.collector.description import description, stamp
from server.collector.repository import Repository

logger = logging.getLogger(__name__)

BATCH: Final = 20_000  # points of a commit
BACKLOG_SECONDS: Final = 2.0  # a look, for runs that ended
BUSY_SECONDS: Final = 0.5
IDLE_SECONDS: Final = 1.0
AFTER_END_SECONDS: Final = 60.0  # a network file system may show files late
SLOWER_AFTER_FAULT: Final = 30.0
LOOK_BACK: Final = timedelta(minutes=5)


@dataclass(slots=True)
class _Followed:
    """What is remembered of a run between two looks at it."""

    sizes: dict[Path, int] = field(default_factory=dict)
    described: tuple[Any, ...] = ()
    not_before: float = 0.0


class Collector:
    """Follows the runs of a catalogue; one repository a workspace, below ``folder``."""

    def __init__(
        self,
        catalogue: Catalogue,
        folder: Path,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._catalogue = catalogue
        self._folder = folder
        self._clock = clock
        self._repositories: dict[str, Repository] = {}
        self._followed: dict[str, _Followed] = {}
        self._backlog: dict[str, TrackedRun] = {}  # ended, and not yet closed
        self._since = datetime.fromtimestamp(0, UTC)

    def look(self) -> bool:
        """Look at every run that goes on, and for a while at those that ended.

        Returns whether anything was new.
        """
        began = datetime.fromtimestamp(self._clock(), UTC)
        moved = False
        for tracked in self._catalogue.runs(self._since):
            if tracked.ended is None:
                self._backlog.pop(tracked.id, None)
                moved |= self._look_at(tracked)
            elif not self._repository(tracked.workspace).is_closed(tracked):
                self._backlog[tracked.id] = tracked
        self._since = began - LOOK_BACK
        return self._work_off() or moved

    def _work_off(self) -> bool:
        """Look at runs that ended, newest first; what goes on must not wait for them."""
        moved = False
        deadline = time.monotonic() + BACKLOG_SECONDS
        ordered = sorted(self._backlog.values(), key=lambda run: -(run.ended or 0))
        for tracked in ordered:
            moved |= self._look_at(tracked)
            if self._repository(tracked.workspace).is_closed(tracked):
                del self._backlog[tracked.id]
                self._followed.pop(tracked.id, None)
            if time.monotonic() > deadline:
                return True
        return moved

    def run(self, stopped: Callable[[float], bool]) -> None:
        """Look again and again until ``stopped``, which waits for so many seconds."""
        wait = 0.0
        while not stopped(wait):
            try:
                wait = BUSY_SECONDS if self.look() else IDLE_SECONDS
            except HpcplatError as error:  # the database is away, for example
                logger.warning("%s", error)
                wait = SLOWER_AFTER_FAULT
        self.close()

    def close(self) -> None:
        """Write what waits, and let go of the repositories."""
        for repository in self._repositories.values():
            repository.close()
        self._repositories.clear()

    def _look_at(self, tracked: TrackedRun) -> bool:
        followed = self._followed.setdefault(tracked.id, _Followed())
        if self._clock() < followed.not_before:
            return False
        try:
            return self._follow(tracked, followed)
        except Exception:  # one run's fault must not keep the others from the UI
            logger.exception("job %s could not be collected; later again", tracked.id)
            self._repository(tracked.workspace).forget(tracked)
            followed.sizes.clear()
            followed.not_before = self._clock() + SLOWER_AFTER_FAULT
            return False

    def _follow(self, tracked: TrackedRun, followed: _Followed) -> bool:
        repository = self._repository(tracked.workspace)
        if tracked.ended is None and repository.is_closed(tracked):
            repository.mark_closed(tracked, closed=False)  # it was requeued
        news = list(_news(tracked, followed))
        described = stamp(tracked)
        if described != followed.described:
            _describe(repository.run(tracked), tracked)
        if news or described != followed.described:
            self._take(repository.run(tracked), tracked, news)
            followed.sizes.update(news)
            followed.described = described
        if self._is_over(tracked):
            repository.close_run(tracked)
            repository.mark_closed(tracked, closed=True)
        return bool(news)

    def _take(
        self, run: AimRun, tracked: TrackedRun, news: list[tuple[Path, int]]
    ) -> None:
        grown = {path for path, _ in news}
        for file in metrics_files(tracked.folder):
            if file.path in grown:
                self._take_file(run, tracked, file)
        _take_events(run, RunFolder(tracked.folder))
        run.describe_notes()
        run.end(tracked.ended)
        run.commit()

    def _take_file(self, run: AimRun, tracked: TrackedRun, file: MetricsFile) -> None:
        media = media_folder(tracked.folder)
        ended = self._is_over(tracked)
        while True:
            position = run.position(file)
            chunk = read_chunk(file.path, position.offset, ended=ended)
            if chunk.offset == position.offset:
                return
            damaged = position.damaged + chunk.damaged
            after = position._replace(offset=chunk.offset, damaged=damaged)
            run.take(file, chunk.records, after, media)
            if run.pending >= BATCH:
                run.commit()

    def _is_over(self, tracked: TrackedRun) -> bool:
        ended = tracked.ended
        return ended is not None and self._clock() - ended > AFTER_END_SECONDS

    def _repository(self, workspace: str) -> Repository:
        found = self._repositories.get(workspace)
        if found is None:
            found = Repository(self._folder / workspace)
            self._repositories[workspace] = found
        return found


def _news(tracked: TrackedRun, followed: _Followed) -> Iterator[tuple[Path, int]]:
    """Yield the files that have another size than when they were last read."""
    paths = [file.path for file in metrics_files(tracked.folder)]
    for path in [*paths, RunFolder(tracked.folder).events]:
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            continue
        if followed.sizes.get(path) != size:
            yield path, size


def _describe(run: AimRun, tracked: TrackedRun) -> None:
    named = tracked.id != tracked.name
    run.name(f"{tracked.name} {tracked.id}" if named else tracked.id, tracked.name)
    for key, value in description(tracked).items():
        run.describe(key, value)


def _take_events(run: AimRun, folder: RunFolder) -> None:
    while True:
        events, end = eventlog.read(folder.events, run.events.offset)
        if end == run.events.offset:
            return
        for event in events:
            failed = event.kind in FAILURES
            step = _step_before(folder.root, event.time) if failed else None
            run.take_event(event, end, step)


def _step_before(folder: Path, time: float) -> int:
    """Return the newest step that the run's curve had at a time; 0 before any."""
    main = [file.path for file in metrics_files(folder) if file.source == MAIN]
    found = [newest_before(path, time) for path in main]
    return max(((n.time, n.step) for n in found if n is not None), default=(0.0, 0))[1]
