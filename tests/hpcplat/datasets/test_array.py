from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpcplat.datasets.array import Array
from hpcplat.datasets.codecs import compressors
from hpcplat.datasets.damage import DamagedError
from hpcplat.datasets.shard import encode_index
from hpcplat.errors import InvalidError
from storage.layout import Layout
from storage.writing import ArrayWriter

STREAM = np.random.default_rng(0).integers(0, 50_000, 20_000).astype(np.uint16)
PAGE = os.sysconf("SC_PAGE_SIZE")
# Shards of whole pages are mapped as one array; the others are read by chunk.
LAYOUTS = [Layout(PAGE // 8, PAGE), Layout(100, 1000)]


def _write(
    folder: Path, values: npt.NDArray[np.uint16], layout: Layout, how: str
) -> Path:
    codecs = compressors(how, 2)
    writer = ArrayWriter(folder, values.dtype, layout=layout, compressors=codecs)
    writer.append(values)
    writer.close()
    return folder


@pytest.fixture(scope="module", params=["none", "blosc", "zstd"])
def how(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=LAYOUTS)
def folder(
    tmp_path_factory: pytest.TempPathFactory, how: str, request: pytest.FixtureRequest
) -> Path:
    return _write(tmp_path_factory.mktemp("array"), STREAM, request.param, how)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(data=st.data(), memory=st.sampled_from([1, 3000, 10**9]))
def test_windows_are_those_of_the_stream(
    folder: Path, data: st.DataObject, memory: int
) -> None:
    width = data.draw(st.integers(1, 3000))
    starts = data.draw(st.lists(st.integers(0, len(STREAM) - width), max_size=20))
    array = Array(folder, memory_bytes=memory, threads=2)
    found = array.windows(np.array(starts, np.int64), width)
    expected = [STREAM[start : start + width] for start in starts]
    assert found.shape == (len(starts), width)
    np.testing.assert_array_equal(found, np.reshape(expected, found.shape))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(rows=st.lists(st.integers(0, len(STREAM) - 1), max_size=50))
def test_rows_are_those_of_the_stream(folder: Path, rows: list[int]) -> None:
    array = Array(folder, memory_bytes=5000)
    np.testing.assert_array_equal(array.take(rows), STREAM[np.array(rows, np.int64)])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(bounds=st.tuples(*[st.integers(0, len(STREAM))] * 2))
def test_slices_are_those_of_the_stream(folder: Path, bounds: tuple[int, int]) -> None:
    start, stop = sorted(bounds)
    found = Array(folder, memory_bytes=5000).slice(start, stop)
    np.testing.assert_array_equal(found, STREAM[start:stop])


def test_it_travels_to_another_process(folder: Path) -> None:
    array = pickle.loads(pickle.dumps(Array(folder)))
    np.testing.assert_array_equal(array.take([5, 3]), STREAM[[5, 3]])


@pytest.mark.parametrize("row", [-1, len(STREAM)])
def test_rows_outside_are_refused(folder: Path, row: int) -> None:
    with pytest.raises(InvalidError, match="20000 rows"):
        Array(folder).take([0, row])
    with pytest.raises(InvalidError):
        Array(folder).windows([row - 1], 3)


def test_what_was_handed_out_outlives_the_array(folder: Path) -> None:
    view = Array(folder).all_rows()
    np.testing.assert_array_equal(view, STREAM)


def test_a_view_cannot_be_written_to(tmp_path: Path) -> None:
    view = Array(_write(tmp_path, STREAM, LAYOUTS[0], "none")).all_rows()
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1


@pytest.fixture
def shard(tmp_path: Path, how: str) -> Path:
    return _write(tmp_path, STREAM, LAYOUTS[0], how) / "c.1"


def _read_all(shard: Path) -> None:
    Array(shard.parent).take(np.arange(len(STREAM)))


def test_a_missing_shard_is_named(shard: Path) -> None:
    shard.unlink()
    with pytest.raises(DamagedError, match=r"c\.1 is missing"):
        _read_all(shard)


@pytest.mark.parametrize("left", [0, 10, 500])
def test_a_truncated_shard_is_named(shard: Path, left: int) -> None:
    os.truncate(shard, left)
    with pytest.raises(DamagedError, match=r"c\.1"):
        _read_all(shard)


def test_an_index_outside_the_file_is_refused(shard: Path) -> None:
    content = bytearray(shard.read_bytes())
    index = np.frombuffer(content[-132:-4], "<u8").reshape(8, 2).copy()
    index[3, 0] = 2**63
    _forge(shard, content, index)
    with pytest.raises(DamagedError, match="chunk 3 outside"):
        _read_all(shard)


def test_a_flipped_bit_in_the_index_is_found(shard: Path) -> None:
    content = bytearray(shard.read_bytes())
    content[-20] ^= 4
    shard.write_bytes(content)
    with pytest.raises(DamagedError, match="checksum"):
        _read_all(shard)


def _forge(shard: Path, content: bytearray, index: npt.NDArray[np.uint64]) -> None:
    shard.write_bytes(bytes(content[:-132]) + encode_index(index))


def test_chunks_in_another_order_are_read_all_the_same(tmp_path: Path) -> None:
    # Zarr lets a writer put chunks anywhere: the values must follow the index.
    shard = _write(tmp_path, STREAM, LAYOUTS[0], "none") / "c.1"
    content = bytearray(shard.read_bytes())
    index = np.frombuffer(content[-132:-4], "<u8").reshape(8, 2).copy()
    size = int(index[0, 1])
    first, second = content[:size], content[size : 2 * size]
    content[:size], content[size : 2 * size] = second, first
    index[[0, 1], 0] = index[[1, 0], 0]
    _forge(shard, content, index)
    np.testing.assert_array_equal(Array(tmp_path).all_rows(), STREAM)
