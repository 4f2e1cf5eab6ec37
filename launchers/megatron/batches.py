"""What this rank reads of each global batch, and a hash of it that adds up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from hpcplat.errors import InvalidError
from hpcplat.training import Training

# Sums of the hash over all ranks must stay exact in float64: 26 bits + log2(ranks).
HASH_BITS = 26


class Windows(Protocol):
    """Samples of a split, such as hpcplat.datasets.TokenWindows."""

    def __len__(self) -> int:
        """Return the number of samples."""
        ...

    @property
    def vocabulary_size(self) -> int:
        """Number of token ids."""
        ...

    def rows(self, indices: ArrayLike) -> NDArray[Any]:
        """Return the samples' tokens, (n, length + 1)."""
        ...


class Order(Protocol):
    """The order of samples, such as hpcplat.datasets.Cursor."""

    def indices(self, start: int, count: int) -> NDArray[np.int64]:
        """Return the samples at positions ``start`` … of the global order."""
        ...


@dataclass(frozen=True, slots=True)
class Share:
    """Which part of each global batch is read here: replica ``index`` of ``count``."""

    index: int
    count: int


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Tokens, labels and positions of one forward pass, each (micro size, length)."""

    tokens: torch.Tensor
    labels: torch.Tensor
    positions: torch.Tensor


@dataclass(frozen=True, slots=True)
class Batches:
    """Global batches of a split in an order, this replica's share of each.

    ``batch`` and ``micro`` are in samples, ``length`` in tokens.
    """

    windows: Windows
    order: Order
    share: Share
    batch: int
    micro: int
    device: torch.device

    def ids(self, position: int) -> NDArray[np.int64]:
        """Return the samples of this replica in the batch that begins at ``position``."""
        first = self.batch * self.share.index // self.share.count
        last = self.batch * (self.share.index + 1) // self.share.count
        return self.order.indices(position + first, last - first)

    def read(self, ids: NDArray[np.int64]) -> list[MicroBatch]:
        """Return the samples as micro batches on this rank's device."""
        rows = torch.from_numpy(self.windows.rows(ids).astype(np.int64))
        if self.device.type == "cuda":
            rows = rows.pin_memory().to(self.device, non_blocking=True)
        length = rows.shape[1] - 1
        positions = torch.arange(length, device=self.device)
        return [
            MicroBatch(
                part[:, :-1].contiguous(),
                part[:, 1:].contiguous(),
                positions.expand(part.shape[0], length),
            )
            for part in torch.split(rows, self.micro)
        ]


def hash_of(ids: NDArray[np.int64], position: int, share: Share) -> tuple[int, int]:
    """Return two 26-bit sums over (place in the global batch, sample) pairs.

    Summed over the replicas they are the same in every layout.
    """
    place = np.arange(len(ids), dtype=np.uint64)
    base = np.uint64(position + len(ids) * share.index)
    mixed = (place + base) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= ids.astype(np.uint64) * np.uint64(0xD1342543DE82EF95)
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    modulus = 1 << HASH_BITS
    low, high = mixed >> np.uint64(8), mixed >> np.uint64(38)
    return int(low.sum() % modulus), int(high.sum() % modulus)


def joined_hash(sums: Sequence[float]) -> str:
    """Return the global hash in hexadecimal from the two sums over all replicas."""
    low, high = (int(one) % (1 << HASH_BITS) for one in sums)
    return f"{(high << HASH_BITS) | low:013x}"


def check_data(training: Training, windows: Windows) -> None:
    """Refuse data that the model cannot take, before step 0."""
    if windows.vocabulary_size > training.model.vocab_size:
        raise InvalidError(
            f"The dataset has {windows.vocabulary_size} token ids, the model's "
            f"vocabulary {training.model.vocab_size}.",
            f"Set settings.model.vocab_size to {windows.vocabulary_size} or more.",
        )
    batch = training.settings.batch.global_size
    if len(windows) < batch:
        raise InvalidError(
            f"{len(windows)} samples of {training.sequence_length} tokens are too few "
            f"for one batch of {batch}.",
            "Lower settings.batch.global_size or settings.data.sequence_length.",
        )
