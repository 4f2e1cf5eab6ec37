"""MosaicML's MDS: shards of samples, one after the other, and ``index.json``.

Layout of a shard, little-endian: the number of samples and their n+1 byte offsets
(uint32 each), the columns as JSON, then each sample: the sizes of its columns of no
fixed size (uint32 each), and the columns' bytes.
"""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hpcplat.datasets.version import Split
from hpcplat.errors import InvalidError, NotFoundError
from storage.ingest.sources import needs, reaching
from storage.ingest.zstd_file import ZstdFile

Values = npt.NDArray[Any]
Sample = dict[str, Values | str | bytes]

_SHARD_BYTES = 2**26
_SCALARS = "uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 float32 float64"
_TYPES = {
    8: "uint8",
    9: "int8",
    16: "uint16",
    17: "int16",
    18: "float16",
    32: "uint32",
    33: "int32",
    34: "float32",
    64: "uint64",
    65: "int64",
    66: "float64",
}


def read(folder: Path) -> Iterator[Sample]:
    """Yield the samples of all shards in order, zstd-compressed ones too.

    Raises NotFoundError without an index, InvalidError for a shard that is damaged or
    a column that is not numbers, text or encoded pictures.
    """
    path = folder / "index.json"
    if not path.is_file():
        raise NotFoundError(f"There is no {path}.", "Give the folder that holds it.")
    try:
        shards = json.loads(path.read_text())["shards"]
    except (ValueError, KeyError) as error:
        raise InvalidError(f"{path} is no index of MDS.", "Check it.") from error
    for shard in shards:
        content, name = _content(folder, shard)
        try:
            yield from _samples(content, shard)
        except (struct.error, ValueError, IndexError, KeyError) as error:
            raise InvalidError(
                f"{name} is not a whole MDS shard ({error}).", "Fetch it again."
            ) from error


def _content(folder: Path, shard: Mapping[str, Any]) -> tuple[bytes, Path]:
    raw = folder / shard["raw_data"]["basename"]
    if raw.is_file():
        return raw.read_bytes(), raw
    packed = shard.get("zip_data")
    path = folder / packed["basename"] if packed else raw
    if not path.is_file():
        raise NotFoundError(f"There is no shard {path}.", "Fetch it again.")
    if not str(shard["compression"]).startswith("zstd"):
        raise InvalidError(
            f"{path} is compressed with {shard['compression']}.", "Unpack it first."
        )
    with reaching(str(path)), path.open("rb") as raw:
        return ZstdFile(raw, needs("zstandard").ZstdDecompressor()).readall(), path


def _samples(content: bytes, shard: Mapping[str, Any]) -> Iterator[Sample]:
    (count,) = struct.unpack_from("<I", content)
    offsets = np.frombuffer(content, "<u4", count + 1, 4).tolist()
    names, encodings = shard["column_names"], shard["column_encodings"]
    sizes = shard["column_sizes"]
    for start, stop in itertools.pairwise(offsets):
        if not start <= stop <= len(content):
            raise ValueError("a sample lies outside of it")
        parts = _split(content[start:stop], sizes)
        columns = zip(names, encodings, parts, strict=True)
        yield {name: _decoded(encoding, part) for name, encoding, part in columns}


def _split(data: bytes, sizes: Sequence[int | None]) -> Iterator[bytes]:
    free = sum(not size for size in sizes)
    given = iter(struct.unpack_from(f"<{free}I", data))
    place = 4 * free
    for size in sizes:
        length = size or next(given)
        if place + length > len(data):
            raise ValueError("a column is cut short")
        yield data[place : place + length]
        place += length


def _decoded(encoding: str, data: bytes) -> Values | str | bytes:
    if encoding in _SCALARS.split() or encoding == "int":
        return np.frombuffer(data, "<i8" if encoding == "int" else encoding)[0]  # type: ignore[no-any-return]
    if encoding.startswith("ndarray"):
        return _array(encoding.split(":")[1:], data)
    if encoding in ("str", "str_int", "str_float"):
        return data.decode()
    if encoding in ("jpeg", "png", "bytes"):
        return data
    raise InvalidError(
        f"Columns of MDS encoding {encoding} are not read.",
        "Rewrite them as numbers, arrays, text, png or jpeg.",
    )


def _array(words: Sequence[str], data: bytes) -> Values:
    place = 0
    if words:
        dtype = words[0]
    else:
        dtype, place = _TYPES[data[0]], 1
    if len(words) > 1:
        shape = [int(word) for word in words[1].split(",")]
    else:
        dimensions, width = data[place] >> 2, 2 ** (data[place] & 3)
        place += 1
        shape = np.frombuffer(data, f"<u{width}", dimensions, place).tolist()
        place += dimensions * width
    return np.frombuffer(data, dtype, offset=place).reshape(shape)


def write(split: Split, folder: Path) -> None:
    """Write a split: a document, image or row is a sample, a column each array."""
    names = sorted(n for n in split.names if n != "documents")
    encodings = [_encoding(split, name) for name in names]
    sizes = [_fixed_size(encoding) for encoding in encodings]
    config = {
        "column_encodings": encodings,
        "column_names": names,
        "column_sizes": sizes,
        "compression": None,
        "format": "mds",
        "hashes": [],
        "size_limit": _SHARD_BYTES,
        "version": 2,
    }
    shards: list[dict[str, Any]] = []
    for samples in _gathered(_encoded(split, names, encodings)):
        basename = f"shard.{len(shards):05}.mds"
        content = _shard(samples, config)
        (folder / basename).write_bytes(content)
        raw = {"basename": basename, "bytes": len(content), "hashes": {}}
        about = {"raw_data": raw, "samples": len(samples), "zip_data": None}
        shards.append({**config, **about})
    index = json.dumps({"version": 2, "shards": shards}, sort_keys=True)
    (folder / "index.json").write_text(index)


def _encoding(split: Split, name: str) -> str:
    array = split[name]
    if "documents" in split.names:
        return f"ndarray:{array.dtype.name}"
    if len(array.shape) == 1:
        return array.dtype.name
    return f"ndarray:{array.dtype.name}:{','.join(map(str, array.shape[1:]))}"


def _fixed_size(encoding: str) -> int | None:
    words = encoding.removeprefix("ndarray:").split(":")
    if encoding.startswith("ndarray:") and len(words) == 1:
        return None
    shape = [int(word) for word in words[1].split(",")] if len(words) > 1 else []
    return int(np.prod(shape, dtype=np.int64)) * np.dtype(words[0]).itemsize


def _encoded(
    split: Split, names: Sequence[str], encodings: Sequence[str]
) -> Iterator[bytes]:
    if "documents" in split.names:
        offsets = split["documents"].all_rows().tolist()
        for start, stop in itertools.pairwise(offsets):
            ids = split["tokens"].slice(start, stop)
            width = 0 if len(ids) < 2**8 else 1 if len(ids) < 2**16 else 2
            shape = bytes([1 << 2 | width]) + len(ids).to_bytes(2**width, "little")
            data = shape + ids.tobytes()
            yield struct.pack("<I", len(data)) + data
        return
    for start in range(0, split.samples, 1024):
        stop = min(start + 1024, split.samples)
        columns = [split[name].slice(start, stop) for name in names]
        for row in range(stop - start):
            yield b"".join(column[row].tobytes() for column in columns)


def _gathered(samples: Iterator[bytes]) -> Iterator[list[bytes]]:
    group: list[bytes] = []
    size = 0
    for sample in samples:
        if group and size + len(sample) > _SHARD_BYTES:
            yield group
            group, size = [], 0
        group.append(sample)
        size += len(sample) + 4
    if group:
        yield group


def _shard(samples: Sequence[bytes], config: Mapping[str, Any]) -> bytes:
    text = json.dumps(config, sort_keys=True).encode()
    sizes = np.array([0, *map(len, samples)], np.int64)
    offsets = np.cumsum(sizes) + 4 + 4 * len(sizes) + len(text)
    head = struct.pack("<I", len(samples)) + offsets.astype("<u4").tobytes()
    return head + text + b"".join(samples)
