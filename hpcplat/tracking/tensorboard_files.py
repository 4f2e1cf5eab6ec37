"""TensorBoard's files of programs that know nothing of us, followed as they grow."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hpcplat.tracking.layout import MAIN, metrics_files
from hpcplat.tracking.tensorboard_search import EventFile
from hpcplat.tracking.tfevents import NoEventFileError, TensorBoardValue, read_events
from hpcplat.tracking.writer import MetricsWriter

logger = logging.getLogger(__name__)

SOURCE: Final = "tensorboard"


@dataclass(slots=True)
class _Followed:
    file: EventFile
    prefix: str
    writer: MetricsWriter
    offset: int = 0
    broken: bool = False


class TensorBoardFollower:
    """Copies the values of event files into a run's metrics.

    Rank 0's are the run's own curves, unless it logs some itself: then they are kept
    apart as the source ``tensorboard``; other ranks' are kept by rank.
    """

    def __init__(self, run: Path, attempt: int) -> None:
        self._run, self._attempt = run, attempt
        self._writers: dict[str, MetricsWriter] = {}
        self._roots: dict[int, Path] = {}
        self._files: dict[Path, _Followed] = {}

    def see(self, file: EventFile) -> None:
        """Follow a file, from its beginning, if it is new."""
        if file.path in self._files:
            return
        root = self._roots.setdefault(file.rank, file.path.parent)
        # add_scalars() and friends write each curve into a folder below the first.
        below = file.path.parent != root and file.path.parent.is_relative_to(root)
        prefix = f"{file.path.parent.relative_to(root)}/" if below else ""
        self._files[file.path] = _Followed(file, prefix, self._writer(file.rank))

    def look(self) -> None:
        """Copy what is new in all files."""
        for followed in self._files.values():
            while not followed.broken and self._copy(followed):
                pass

    def close(self) -> None:
        """Copy what is new, and end."""
        self.look()
        for writer in self._writers.values():
            writer.close()

    def _copy(self, followed: _Followed) -> bool:
        """Copy some megabytes; return whether there may be more."""
        before = followed.offset
        try:
            values, followed.offset = read_events(followed.file.path, before)
        except (OSError, NoEventFileError) as error:
            logger.warning("%s: %s", followed.file.path, error)
            followed.broken = True
            return False
        for value in values:
            _log(followed, value)
        followed.writer.flush()  # it takes so many at once, and drops more
        return followed.offset != before

    def _writer(self, rank: int) -> MetricsWriter:
        source = f"rank-{rank}" if rank else self._main_source()
        if source not in self._writers:
            writer = MetricsWriter(self._run, rank, self._attempt, source=source)
            self._writers[source] = writer
        return self._writers[source]

    def _main_source(self) -> str:
        found = metrics_files(self._run)
        own = any((f.attempt, f.source) == (self._attempt, MAIN) for f in found)
        return SOURCE if own and MAIN not in self._writers else MAIN


def _log(followed: _Followed, value: TensorBoardValue) -> None:
    name = followed.prefix + value.name
    followed.writer.log({name: value.value}, value.step, time=value.time)
