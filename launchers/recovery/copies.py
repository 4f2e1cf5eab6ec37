"""The copies of ranks' states that one node holds in memory: which, and where; a record.

Rules (two slots suffice by them, whatever dies when):

- A rank takes a copy of step t only when every rank's copy before it is complete, here
  and on another node (the ranks agree on that in the step itself).
- So while one is being taken, only the newest complete copy is needed, and is kept.
- After a restart from step R only copies of R stay: a later one is not whole over all
  ranks, and would be mistaken for the one that is made when the step is run again.
"""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

EMPTY: Final = -1


@dataclass(slots=True, weakref_slot=True, eq=False)
class Memory:
    """Bytes that processes share; they live as long as somebody holds the file."""

    file: int
    size: int
    view: mmap.mmap

    def content(self, size: int) -> memoryview:
        """Return the first bytes."""
        return memoryview(self.view)[:size]


def new_memory(size: int) -> Memory:
    """Return fresh memory of some bytes, each page of it there."""
    file = os.memfd_create("hpcplat-copy", os.MFD_CLOEXEC)
    os.ftruncate(file, max(size, 1))
    return mapped(file, size)


def mapped(file: int, size: int) -> Memory:
    """Return the memory behind a file that somebody handed over."""
    memory = Memory(file, size, mmap.mmap(file, max(size, 1)))
    weakref.finalize(memory, os.close, file)
    return memory


@dataclass(slots=True)
class Copy:
    """A rank's state after a step. ``digest`` is its SHA-256, empty until known.

    ``generation`` is that of the rank, which counts the starts within the attempt.
    """

    rank: int
    generation: int
    step: int
    size: int
    meta: Mapping[str, Any]
    memory: Memory
    digest: bytes = b""


@dataclass(slots=True)
class Copies:
    """All copies that a keeper holds; every method may be called from any thread."""

    _held: dict[int, list[Copy]] = field(default_factory=dict)
    _resume: int = EMPTY  # the step that the newest start went on from
    _generation: int = EMPTY
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def make_way(self, rank: int, memory: Memory | None = None) -> list[Memory]:
        """Forget all of a rank's copies but the newest, and any in ``memory``.

        Returns the memory that nobody needs now.
        """
        with self._lock:
            held = self._held.setdefault(rank, [])
            keep = [copy for copy in held if copy.memory is not memory][-1:]
            free = [c.memory for c in held if c not in keep]
            self._held[rank] = keep
            return free

    def add(self, copy: Copy) -> None:
        """Hold a complete copy; not one that ranks which were given up made too late."""
        with self._lock:
            if self._is_wanted(copy):
                self._held.setdefault(copy.rank, []).append(copy)

    def find(self, rank: int, step: int) -> Copy | None:
        """Return a rank's copy of a step."""
        with self._lock:
            found = (c for c in self._held.get(rank, ()) if c.step == step)
            return next(found, None)

    def keep_only(self, step: int, generation: int) -> None:
        """Forget the copies of other steps that earlier generations made, or make yet."""
        with self._lock:
            self._resume, self._generation = step, generation
            for rank, held in self._held.items():
                self._held[rank] = [copy for copy in held if self._is_wanted(copy)]

    def _is_wanted(self, copy: Copy) -> bool:
        return copy.step == self._resume or copy.generation >= self._generation

    def listing(self) -> list[tuple[int, int]]:
        """Return (rank, step) of every copy."""
        with self._lock:
            return [(c.rank, c.step) for held in self._held.values() for c in held]
