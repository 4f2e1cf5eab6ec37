"""What we write, every Zarr implementation reads; what zarr-python writes, we read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tensorstore
import zarr
import zarrs  # noqa: F401 (registers its codec pipeline)
from zarr.codecs import (
    BloscCodec,
    BytesCodec,
    Crc32cCodec,
    GzipCodec,
    ShardingCodec,
    ZstdCodec,
)

from hpcplat.datasets.array import Array
from hpcplat.datasets.codecs import compressors
from storage.layout import Layout
from storage.writing import ArrayWriter

Values = npt.NDArray[Any]


def _zarr_python(folder: Path) -> Values:
    return np.asarray(zarr.open_array(folder, mode="r")[:])


def _zarrs(folder: Path) -> Values:
    with zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"}):
        return np.asarray(zarr.open_array(folder, mode="r")[:])


def _tensorstore(folder: Path) -> Values:
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(folder)}}
    return np.asarray(tensorstore.open(spec).result().read().result())


def _ours(folder: Path) -> Values:
    return Array(folder).all_rows()


READERS: list[Callable[[Path], Values]] = [_zarr_python, _zarrs, _tensorstore, _ours]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("compressor", ["none", "blosc", "zstd"])
@pytest.mark.parametrize(
    ("dtype", "shape"),
    [
        ("uint16", (5000,)),
        ("uint32", (4096,)),
        ("uint64", (1,)),
        ("uint8", (300, 5, 7, 3)),
        ("float32", (1000, 3)),
        ("float16", (65, 2)),
        ("int64", (2048,)),
        ("bool", (777,)),
    ],
)
def test_every_reader_sees_the_same_values(
    tmp_path: Path,
    reader: Callable[[Path], Values],
    compressor: str,
    dtype: str,
    shape: tuple[int, ...],
) -> None:
    values = _values(dtype, shape)
    writer = ArrayWriter(
        tmp_path / "a",
        values.dtype,
        shape[1:],
        layout=Layout(64, 1024),
        compressors=compressors(compressor, values.dtype.itemsize),
    )
    writer.append(values)
    writer.close()
    found = reader(tmp_path / "a")
    assert found.dtype == values.dtype
    np.testing.assert_array_equal(found, values)


def test_chunks_of_zeros_are_written_all_the_same(tmp_path: Path) -> None:
    writer = ArrayWriter(tmp_path / "a", np.dtype(np.uint16), layout=Layout(64, 1024))
    writer.append(np.zeros(1000, np.uint16))
    files = writer.close()
    assert files["c.0"].size == 1024 * 2 + 16 * 16 + 4
    for reader in READERS:
        np.testing.assert_array_equal(reader(tmp_path / "a"), np.zeros(1000))


INNER: list[list[Any]] = [
    [BytesCodec()],
    [BytesCodec(endian="big")],
    [BytesCodec(), BloscCodec(cname="lz4", typesize=2)],
    [BytesCodec(), ZstdCodec(level=1)],
    [BytesCodec(), GzipCodec()],
    [BytesCodec(), Crc32cCodec()],
    [BytesCodec(), ZstdCodec(level=1), Crc32cCodec()],
]


@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("index_location", ["start", "end"])
@pytest.mark.parametrize("shape", [(5000,), (300, 4, 3)])
@pytest.mark.parametrize("empty", [True, False])
def test_arrays_of_zarr_python_are_read(
    tmp_path: Path,
    inner: list[Any],
    index_location: Any,  # noqa: ANN401
    shape: tuple[int, ...],
    empty: bool,
) -> None:
    values = _values("uint16", shape)
    values[100:200] = 7  # the fill value: whole chunks of it are not stored
    array = zarr.create_array(
        tmp_path / "a",
        shape=shape,
        dtype="uint16",
        chunks=(1024, *shape[1:]),
        serializer=ShardingCodec(
            chunk_shape=(32, *shape[1:]), codecs=inner, index_location=index_location
        ),
        filters=None,
        compressors=None,
        fill_value=7,
        config={"write_empty_chunks": empty},
    )
    array[:] = values
    found = Array(tmp_path / "a", memory_bytes=10_000, threads=2)
    np.testing.assert_array_equal(found.all_rows(), values)
    rows = np.array([0, 4, 150, 299, 150, 17])
    np.testing.assert_array_equal(found.take(rows), values[rows])
    assert found.take(rows).dtype.isnative


def _values(dtype: str, shape: tuple[int, ...]) -> Values:
    random = np.random.default_rng(7)
    return np.asarray(random.integers(0, 200, shape)).astype(dtype)
