"""NumPy's own files: one ``.npy`` for each array of a split."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hpcplat.datasets.version import Split

_BATCH_BYTES = 2**26


def write(split: Split, folder: Path) -> None:
    """Write each array of a split as ``split-array.npy``."""
    for name in split.names:
        array = split[name]
        path = folder / f"{split.name}-{name}.npy"
        out = np.lib.format.open_memmap(path, "w+", array.dtype, array.shape)
        rows = max(1, _BATCH_BYTES // max(array.format.row_bytes, 1))
        for start in range(0, len(array), rows):
            stop = min(start + rows, len(array))
            out[start:stop] = array.slice(start, stop)
        out.flush()
