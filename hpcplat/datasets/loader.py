"""Batches in the global order, read ahead by threads within a bound on memory."""

from __future__ import annotations

import importlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from hpcplat.datasets.cursor import Order, share_of
from hpcplat.datasets.samples import Batch, Samples, mapped
from hpcplat.errors import InvalidError

# The order is worked out for so many samples at once: single batches cost more.
_ORDER_SAMPLES = 16_384
_WINDOW_BYTES = 4 * 2**20
_MOST_IN_WINDOW = 16  # batches


@dataclass(frozen=True, slots=True)
class Reading:
    """How a rank reads: its part of global batches of ``batch`` samples.

    ``threads`` hold ``ahead`` windows ready (none: each is read when it is asked for).
    A window of batches is read at once: to hand work to another thread costs some 50
    microseconds, and a compressed chunk that several of them need is decoded once. If
    not given it is what makes 4 MiB, or one batch without threads. ``into`` is what
    batches are made of: NumPy arrays, torch tensors, or torch tensors in pinned memory.
    """

    batch: int
    rank: int = 0
    world: int = 1
    ahead: int = 2
    threads: int = 1
    window: int | None = None
    into: Literal["numpy", "torch", "pinned"] = "numpy"

    def __post_init__(self) -> None:
        if min(self.batch, self.window or 1, self.ahead) < 1 or self.threads < 0:
            raise InvalidError(
                "A reading with no batch, no window or nothing ahead.",
                "Use at least 1 for each.",
            )
        share_of(self.batch, self.rank, self.world)


class Loader:
    """Endless batches of samples in an order, from the order's position on.

    The order's position is that of the batches handed out, not of those read ahead,
    so ``order.state()`` after a step is what a checkpoint must hold. Memory: at most
    ``ahead`` + 1 windows. Close it, or use it in a ``with``.
    """

    def __init__(self, samples: Samples, order: Order, reading: Reading) -> None:
        self._plan = BatchPlan(order, reading)
        self._samples = samples
        self._order = order
        self._reading = reading
        self._finish = finisher(reading.into)
        self._pool = ThreadPoolExecutor(reading.threads) if reading.threads else None
        self._pending: deque[Future[list[Any]]] = deque()
        self._ready: deque[Any] = deque()
        self._next = 0  # of the batches, the first that nobody reads yet
        self._window = reading.window or 1
        self._finds_window = reading.window is None and reading.threads > 0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:  # noqa: ANN401 (arrays or tensors, alone or by name)
        """Return this rank's part of the next global batch."""
        if not self._ready:
            self._ready.extend(self._next_window())
        self._order.position += self._reading.batch
        return self._ready.popleft()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop reading ahead."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def _next_window(self) -> list[Any]:
        if self._pool is None:
            return self._read(*self._claim())
        while len(self._pending) < self._reading.ahead:
            self._pending.append(self._pool.submit(self._read, *self._claim()))
        return self._pending.popleft().result()

    def _claim(self) -> tuple[int, int]:
        """Return the first batch of the next window, and how many there are in it."""
        first, count = self._next, self._window
        self._next += count
        return first, count

    def _read(self, first: int, count: int) -> list[Any]:
        """Read one window and cut it into batches."""
        found = [self._plan.batch(first + k) for k in range(count)]
        if count == 1:
            batch = self._samples.batch(*found[0])
            if self._finds_window:
                self._find_window(batch)
            return [self._finish(batch)]
        indices, positions = (np.concatenate(part) for part in zip(*found, strict=True))
        whole = self._samples.batch(indices, positions)
        size = len(found[0][0])
        return [self._finish(_cut(whole, k * size, size)) for k in range(count)]

    def _find_window(self, batch: Batch) -> None:
        """Let the windows from now on hold as many batches of this size as is good."""
        self._finds_window = False
        fit = _WINDOW_BYTES // max(_size(batch), 1)
        self._window = min(max(fit, 1), _MOST_IN_WINDOW)


def _size(batch: Batch) -> int:
    """Return the bytes of a batch."""
    arrays = batch.values() if isinstance(batch, Mapping) else [batch]
    return sum(values.nbytes for values in arrays)


def _cut(batch: Batch, start: int, size: int) -> Batch:
    found: Batch = mapped(lambda values: values[start : start + size], batch)
    return found


class BatchPlan:
    """Which samples this rank reads in batch k, counted from where the order stood."""

    def __init__(self, order: Order, reading: Reading) -> None:
        self._order = order
        self._start = order.position
        self._batch = reading.batch
        first, last = share_of(reading.batch, reading.rank, reading.world)
        self._mine = np.arange(first, last, dtype=np.int64)
        self._block = max(1, _ORDER_SAMPLES // max(len(self._mine), 1))
        self._known: tuple[int, npt.NDArray[np.int64], npt.NDArray[np.int64]] | None
        self._known = None

    def batch(self, number: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the samples of a batch and their positions: both (n,)."""
        block, place = divmod(number, self._block)
        known = self._known
        if known is None or known[0] != block:
            batches = np.arange(block * self._block, (block + 1) * self._block)
            positions = self._start + batches[:, None] * self._batch + self._mine
            known = self._known = block, self._order.at(positions), positions
        return known[1][place], known[2][place]


def finisher(into: str) -> Callable[[Batch], Any]:
    """Return what turns a batch of NumPy arrays into what was asked for."""
    if into == "numpy":
        return _unchanged
    torch = importlib.import_module("torch")
    if into == "torch":
        return lambda batch: mapped(torch.from_numpy, batch)
    return lambda batch: mapped(lambda a: torch.from_numpy(a).pin_memory(), batch)


def _unchanged(batch: Batch) -> Batch:
    return batch
