from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcplat.datasets.array import Array
from hpcplat.errors import InvalidError
from storage.layout import Layout, layout_of
from storage.writing import ArrayWriter


def test_rows_come_back_whatever_the_pieces(tmp_path: Path) -> None:
    rows = np.arange(10_000, dtype=np.uint32)
    writer = ArrayWriter(tmp_path / "a", rows.dtype, layout=Layout(64, 2048))
    for piece in np.split(rows, [1, 63, 64, 200, 2048, 5000, 5001]):
        writer.append(piece)
    entries = writer.close()
    assert sorted(entries) == [*(f"c.{n}" for n in range(5)), "checksums", "zarr.json"]
    np.testing.assert_array_equal(Array(tmp_path / "a").all_rows(), rows)


def test_the_number_of_rows_is_that_appended_not_the_padded(tmp_path: Path) -> None:
    writer = ArrayWriter(tmp_path / "a", np.dtype(np.uint16), layout=Layout(64, 2048))
    writer.append(np.ones(65, np.uint16))
    writer.close()
    assert writer.format().shape == (65,)
    assert Array(tmp_path / "a").shape == (65,)


def test_rows_of_another_shape_are_refused(tmp_path: Path) -> None:
    writer = ArrayWriter(tmp_path / "a", np.dtype(np.uint8), (2, 2))
    with pytest.raises(InvalidError, match="do not fit"):
        writer.append(np.zeros((3, 2, 1), np.uint8))
    with pytest.raises(InvalidError, match="do not fit"):  # never rounded in silence
        writer.append(np.zeros((3, 2, 2), np.float32))


@given(row_bytes=st.integers(1, 2**20))
def test_shards_are_whole_pages_and_whole_chunks(row_bytes: int) -> None:
    layout = layout_of(row_bytes)
    assert layout.shard_rows % layout.chunk_rows == 0
    size = layout.shard_rows * row_bytes
    assert size % 4096 == 0
    assert size <= 4 * 2**30 * 5 / 4
