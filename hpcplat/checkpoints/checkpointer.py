"""What a rank saves with: the step waits for a copy, the rest happens behind it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hpcplat.checkpoints.folder import (
    CheckpointFolder,
    Retention,
    discard,
    listing,
    partial_name,
    remove_leftovers,
    superfluous,
)
from hpcplat.checkpoints.manifest import DamagedError
from hpcplat.checkpoints.shard import Shard, Staging, to_write
from hpcplat.checkpoints.writing import (
    Facts,
    Part,
    SaveFailedError,
    finish,
    wait_for_answers,
    write_part,
)
from hpcplat.errors import HpcplatError

LATECOMERS = 30.0  # seconds that a failed save waits for ranks that are behind


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a save ended: the checkpoint's folder, or why there is none.

    ``stall`` is how long the step waited, ``seconds`` how long all of it took;
    ``nbytes`` what this rank wrote.
    """

    step: int
    path: Path | None
    reason: str
    stall: float
    seconds: float
    nbytes: int


class Checkpointer:
    """Saves of one rank, one at a time, each in a thread of its own.

    ``incarnation`` is one random word for all ranks of this start of the job: parts of
    an earlier start are never taken for parts of this one. ``patience`` is how long
    (seconds) rank 0 waits for the others' parts.
    """

    def __init__(
        self,
        folder: Path,
        incarnation: str,
        rank: int = 0,
        world: int = 1,
        retention: Retention | None = None,
        patience: float = 600.0,
    ) -> None:
        self.folder = folder
        self.incarnation = incarnation
        self.rank = rank
        self.world = world
        self.retention = retention or Retention()
        self.patience = patience
        self._staging = Staging()
        self._thread: threading.Thread | None = None
        self._outcomes: list[Outcome] = []
        self._another_failed = threading.Event()
        if rank == 0:
            folder.mkdir(parents=True, exist_ok=True)
            remove_leftovers(folder, but=incarnation)

    def reserve(self, shards: Iterable[Shard]) -> int:
        """Get the host memory that saves will need; return this rank's bytes."""
        pieces = to_write(shards)
        self._staging.reserve(pieces)
        return sum(one.piece.nbytes for one in pieces)

    def save(self, facts: Facts, shards: Iterable[Shard]) -> float:
        """Copy the state and start to write it; return the seconds it held the step up.

        A save that is still being written is waited for first.
        """
        begun = time.monotonic()
        self.wait()
        pieces = to_write(shards)
        content = self._staging.copy(pieces)
        stall = time.monotonic() - begun
        placed = [(one.piece, one.position) for one in pieces]
        part = Part(self.rank, self.world, placed, content)
        self._another_failed.clear()
        self._thread = threading.Thread(
            target=self._write,
            args=(facts, part, begun, stall),
            name="checkpoint",
            daemon=True,  # a disk that hangs must not keep a rank from its end
        )
        self._thread.start()
        return stall

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until nothing is being written; False if ``timeout`` seconds did not do.

        What was written, and what failed, ``outcomes`` tells.
        """
        if self._thread is not None:
            self._thread.join(timeout)
            if self._thread.is_alive():
                return False
            self._thread = None
        return True

    @property
    def busy(self) -> bool:
        """Whether a save is being written."""
        return self._thread is not None and self._thread.is_alive()

    def outcomes(self) -> list[Outcome]:
        """Return the saves that ended since the last call."""
        found, self._outcomes = self._outcomes, []
        return found

    def abandon(self) -> None:
        """Let rank 0 wait no longer: some other rank is known to have failed."""
        self._another_failed.set()

    def _write(self, facts: Facts, part: Part, begun: float, stall: float) -> None:
        path, reason = None, ""
        try:
            path = self._write_all(facts, part)
        except HpcplatError as error:
            reason = error.what
            if self.rank == 0:
                self._give_up(facts)
        except Exception as error:  # noqa: BLE001 - a thread's edge: it must be told
            reason = f"a fault of hpcplat: {error!r}"
        seconds = time.monotonic() - begun
        self._outcomes.append(
            Outcome(facts.step, path, reason, stall, seconds, len(part.content))
        )

    def _give_up(self, facts: Facts) -> None:
        partial = self.folder / partial_name(facts.step, self.incarnation)
        wait_for_answers(
            CheckpointFolder(partial),
            self.world,
            min(self.patience, LATECOMERS),
            self._another_failed.is_set,
        )
        remove_leftovers(self.folder)

    def _write_all(self, facts: Facts, part: Part) -> Path:
        name = partial_name(facts.step, self.incarnation)
        write_part(CheckpointFolder(self.folder / name), part)
        if self.rank != 0:
            return self.folder / name
        try:
            path = finish(
                self.folder,
                self.incarnation,
                facts,
                self.patience,
                self._another_failed.is_set,
            )
        except DamagedError as error:
            raise SaveFailedError(f"{error.what}.") from error
        self._retain()
        return path

    def _retain(self) -> None:
        good, _ = listing(self.folder)
        for one in superfluous(good, self.retention):
            discard(one.folder.root)
        remove_leftovers(self.folder, but=self.incarnation)
