"""The data that is read: written afresh, in equally large writes for all ways."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from hpcplat.datasets.array import Array
from hpcplat.datasets.codecs import compressors
from storage.layout import Layout
from storage.writing import ArrayWriter

TOKENS = 100_000_000
SHARD = 2**24  # tokens: several shards
CHUNK = 2**16

Tokens = npt.NDArray[np.uint16]


def tokens() -> Tokens:
    """Return a stream that compresses about as tokens do."""
    random = np.random.default_rng(0)
    # Zipf's law over a vocabulary of 50,000: the i-th token has a share of about 1/i.
    share = random.random(TOKENS, dtype=np.float32)
    found: Tokens = np.exp(share * np.float32(np.log(50_000))).astype(np.uint16)
    return found


def flat(path: Path, values: npt.NDArray[np.generic]) -> np.memmap:
    """Write one plain file and map it."""
    values.tofile(path)
    return np.memmap(path, values.dtype, "r", shape=values.shape)


def sharded(
    folder: Path, values: npt.NDArray[np.generic], layout: Layout, how: str = "none"
) -> Array:
    """Write shards and open them."""
    writer = ArrayWriter(
        folder,
        values.dtype,
        values.shape[1:],
        layout=layout,
        compressors=compressors(how, values.dtype.itemsize),
    )
    writer.append(values)
    writer.close()
    return Array(folder, threads=1)
