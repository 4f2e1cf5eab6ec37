"""Copies of a rank's whole state in memory, here and on another node, after each step.

The rank only copies its tensors into memory that it shares with the node's keeper
(launchers.recovery.keeper), which hashes them and sends them away while the rank trains
on. Two slots take turns.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from hpcplat.checkpoints.piece import Piece
from hpcplat.checkpoints.proof import ResumeMismatchError
from hpcplat.checkpoints.shard import ALIGNMENT, DTYPES, Shard
from hpcplat.errors import ConflictError
from launchers.recovery.copies import EMPTY, Memory, mapped, new_memory
from launchers.recovery.fingerprint import fingerprint
from launchers.recovery.room import Room, room_for
from launchers.recovery.wire import Wire

SLOTS: Final = 2


class CopyLostError(ConflictError):
    """The copy that was promised is not there, or is not what it was."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a shard's bytes stand in a copy.

    A rank holds several shards of one key: a logical tensor spans all layers.
    """

    piece: Piece
    start: int
    nbytes: int


def layout(shards: Iterable[Shard]) -> list[Place]:
    """Return where each shard stands in a copy; the same for the same shards."""
    found, position = [], 0
    for shard in shards:
        tensor = shard.tensor
        nbytes = tensor.numel() * tensor.element_size()
        found.append(Place(shard.piece, position, nbytes))
        position += -(-nbytes // ALIGNMENT) * ALIGNMENT
    return found


def total(places: Sequence[Place]) -> int:
    """Return the bytes of a copy."""
    if not places:
        return 0
    last = places[-1]
    return last.start + -(-last.nbytes // ALIGNMENT) * ALIGNMENT


def _view(memory: Memory, place: Place) -> torch.Tensor:
    whole = torch.frombuffer(memory.view, dtype=torch.uint8)
    return whole[place.start : place.start + place.nbytes].view(
        DTYPES[place.piece.dtype]
    )


@dataclass(frozen=True, slots=True)
class Found:
    """A copy to go on from; ``load`` fills shards by what they are pieces of."""

    step: int
    meta: Mapping[str, Any]
    memory: Memory
    places: Sequence[Place]

    def load(self, shards: Iterable[Shard]) -> None:
        """Fill the shards; CopyLostError where the copy has no such piece."""
        by_piece = {place.piece: place for place in self.places}
        for shard in shards:
            place = by_piece.get(shard.piece)
            if place is None:
                raise CopyLostError(f"{shard.key} is not in the copy in memory.")
            shard.flat().copy_(_view(self.memory, place))

    def prove(self, shards: Sequence[Shard]) -> None:
        """Compare the live state with the copy, byte by byte and in the copy's order.

        Not by name: a mistake of ``load`` would not show. Raises ResumeMismatchError.
        """
        for shard, place in zip(shards, self.places, strict=True):
            live = shard.flat().cpu().view(torch.uint8)
            if not torch.equal(live, _view(self.memory, place).view(torch.uint8)):
                raise ResumeMismatchError(
                    f"{shard.key} at {shard.offset} is not, after the load, what the "
                    f"copy of step {self.step} in memory holds."
                )


class MemoryCopies:
    """One rank's copies: takes them, and finds the one to go on from.

    ``every`` is the number of steps between copies. Without a keeper it does nothing.
    """

    def __init__(
        self, keeper: str | None, rank: int, every: int, generation: int = 0
    ) -> None:
        self.every = every
        self._rank, self._generation = rank, generation
        self._wire: Wire | None = None
        self._slots: list[Memory] = []
        self._places: list[Place] = []
        self._taken = 0
        self._waiting = False  # for the last copy to be complete
        self.resume = EMPTY
        if keeper is not None and every:
            self._wire = _reached(keeper)

    def hello(self) -> None:
        """Hear from the keeper whether there is a copy for us."""
        if self._wire is None:
            return
        try:
            self._wire.send(rank=self._rank, generation=self._generation)
            answer = self._wire.receive()
        except OSError:
            answer = None
        if answer is None:  # the keeper died: do without copies
            self.close()
        else:
            self.resume = int(answer["resume"])

    def room(self, shards: Sequence[Shard], ranks_here: int) -> Room | None:
        """Return the room for the copies of all ranks of this node.

        None where nothing is needed: no keeper, or its copies fit in before.
        """
        if self._wire is None or self.resume != EMPTY:
            return None
        return room_for(total(layout(shards)), ranks_here)

    def prepare(self, shards: Sequence[Shard]) -> None:
        """Get the memory for copies of these shards, and show it to the keeper."""
        self._places = layout(shards)
        if self._wire is None:
            return
        size = total(self._places)
        self._slots = [new_memory(size) for _ in range(SLOTS)]
        for slot in self._slots:
            torch.frombuffer(slot.view, dtype=torch.uint8).zero_()  # touch each page
        files = [slot.file for slot in self._slots]
        try:
            self._wire.send_files(files, kind="slots", size=size)
        except OSError:  # the keeper died: do without copies
            self.close()

    def find(self) -> Found:
        """Return the copy of step ``resume``; CopyLostError if it is not as promised."""
        if self._wire is None:
            raise CopyLostError("There is no keeper.")
        try:
            self._wire.send(kind="want")
            answer = self._wire.receive()
        except OSError as error:
            raise CopyLostError("The keeper is gone.") from error
        if answer is None or not answer["ok"]:
            raise CopyLostError(f"The copy of step {self.resume} is gone.")
        memory = mapped(self._wire.files.pop(), int(answer["size"]))
        digest = answer["digest"]
        content = memory.content(memory.size)
        if digest and fingerprint(content).hex() != digest:
            raise CopyLostError(f"The copy of step {self.resume} is damaged.")
        if answer["size"] != total(self._places):
            raise CopyLostError("The copy in memory is of another layout.")
        return Found(int(answer["step"]), answer["meta"], memory, self._places)

    def due(self, step: int) -> bool:
        """Whether a copy is wanted after ``step`` steps."""
        return self._wire is not None and step % self.every == 0

    @property
    def busy(self) -> bool:
        """Whether the last copy is not complete yet, on both nodes."""
        while self._waiting and self._wire is not None and self._readable():
            if self._wire.receive() is None:  # the keeper died: go on without copies
                self.close()
            self._waiting = False
        return self._waiting

    def take(
        self, step: int, meta: Mapping[str, Any], shards: Sequence[Shard]
    ) -> float:
        """Copy the state after ``step`` steps; returns the seconds that it took.

        Only when no rank's last copy is still under way (``busy``): by that rule the
        two slots of all ranks always have one step in common.
        """
        begun = time.monotonic()
        if self._wire is None:
            return 0.0
        slot = self._taken % SLOTS
        try:
            self._wire.send(kind="open", slot=slot)
            for shard, place in zip(shards, self._places, strict=True):
                _view(self._slots[slot], place).copy_(shard.flat())
            self._wire.send(kind="sealed", slot=slot, step=step, meta=dict(meta))
        except OSError:  # the keeper died: go on without copies
            self.close()
            return 0.0
        self._taken, self._waiting = self._taken + 1, True
        return time.monotonic() - begun

    def close(self) -> None:
        """Take no more copies; the keeper holds those that there are."""
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def _readable(self) -> bool:
        if self._wire is None:
            return False
        return bool(select.select([self._wire.socket], [], [], 0)[0])


def _reached(keeper: str) -> Wire | None:
    """Return a connection to this node's keeper; None where it died."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.connect(f"\0{keeper}")
    except OSError:
        sock.close()
        return None
    return Wire(sock)
