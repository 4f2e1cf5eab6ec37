"""A sharded Zarr v3 array as its ``zarr.json`` describes it, and back."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hpcplat.datasets.damage import DamagedError
from hpcplat.datasets.shard import ShardLayout
from hpcplat.errors import InvalidError

_WIDTHS = {"int": (8, 16, 32, 64), "uint": (8, 16, 32, 64), "float": (16, 32, 64)}
DTYPES = ["bool", *(f"{kind}{n}" for kind, bits in _WIDTHS.items() for n in bits)]

Codec = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ArrayFormat:
    """Shape, type and layout of one array; only the first axis is split.

    ``shape`` is (rows, …); a chunk holds ``chunk_rows`` rows and a shard
    ``shard_rows``, a multiple of it. ``compressors`` are the bytes-to-bytes codecs
    of the inner chunks, in the order of writing.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunk_rows: int
    shard_rows: int
    compressors: tuple[Codec, ...] = ()
    separator: str = "."
    fill_value: Any = 0
    index_at_end: bool = True
    index_checked: bool = True
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.dtype.name not in DTYPES:
            raise InvalidError(
                f"Values of type {self.dtype} cannot be stored.",
                f"Convert them to one of: {', '.join(DTYPES)}.",
            )
        if self.chunk_rows < 1 or self.shard_rows % self.chunk_rows:
            raise InvalidError(
                f"A shard of {self.shard_rows} rows is not a multiple of its chunks "
                f"of {self.chunk_rows} rows.",
                "Choose a multiple.",
            )

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.shape[0]

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of one row."""
        return self.shape[1:]

    @property
    def row_bytes(self) -> int:
        """Size of one row in bytes."""
        return int(math.prod(self.row_shape)) * self.dtype.itemsize

    @property
    def chunk_bytes(self) -> int:
        """Size of one decoded inner chunk in bytes."""
        return self.row_bytes * self.chunk_rows

    @property
    def shard_bytes(self) -> int:
        """Size of one decoded shard in bytes."""
        return self.row_bytes * self.shard_rows

    @property
    def shards(self) -> int:
        """Number of shards, the last one maybe not full."""
        return -(-self.rows // self.shard_rows)

    @property
    def shard_layout(self) -> ShardLayout:
        """How the index of a shard is stored."""
        chunks = self.shard_rows // self.chunk_rows
        return ShardLayout(chunks, self.index_checked, self.index_at_end)

    def chunks_in(self, shard: int) -> int:
        """Return how many chunks of this shard hold rows of the array."""
        rows = min(self.rows - shard * self.shard_rows, self.shard_rows)
        return -(-rows // self.chunk_rows)

    def shard_key(self, shard: int) -> str:
        """Return the shard's path below the array's folder."""
        return self.separator.join(["c", str(shard), *("0" for _ in self.row_shape)])


def to_zarr_json(array: ArrayFormat) -> str:
    """Return the text of ``zarr.json``; readable by every Zarr v3 implementation."""
    inner: dict[str, Any] = {"name": "bytes"}
    if array.dtype.itemsize > 1:
        inner["configuration"] = {"endian": "little"}
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(array.shape),
        "data_type": array.dtype.name,
        "chunk_grid": {
            "name": "regular",
            "configuration": {"chunk_shape": [array.shard_rows, *array.row_shape]},
        },
        "chunk_key_encoding": {
            "name": "default",
            "configuration": {"separator": array.separator},
        },
        "fill_value": False if array.dtype.kind == "b" else array.fill_value,
        "codecs": [
            {
                "name": "sharding_indexed",
                "configuration": {
                    "chunk_shape": [array.chunk_rows, *array.row_shape],
                    "codecs": [inner, *array.compressors],
                    "index_codecs": [
                        {"name": "bytes", "configuration": {"endian": "little"}},
                        {"name": "crc32c"},
                    ],
                    "index_location": "end",
                },
            }
        ],
        "attributes": dict(array.attributes),
    }
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def read_array_format(folder: Path) -> ArrayFormat:
    """Read ``zarr.json`` of an array's folder.

    Raises DamagedError for a file that is missing or no Zarr v3 array, InvalidError
    for one whose layout this reader does not know.
    """
    path = folder / "zarr.json"
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise DamagedError.of(path, "is missing") from error
    except ValueError as error:
        raise DamagedError.of(path, "is not JSON") from error
    try:
        return _parse(document)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise InvalidError(
            f"{path} is not a sharded Zarr v3 array that can be read here ({error}).",
            "Import it: `hpcplat data import zarr FOLDER --name NAME`.",
        ) from error


def _parse(document: Mapping[str, Any]) -> ArrayFormat:
    (sharding,) = document["codecs"]
    if sharding["name"] != "sharding_indexed":
        raise ValueError(f"codec {sharding['name']} instead of sharding_indexed")
    options = sharding["configuration"]
    shape = tuple(document["shape"])
    grid = document["chunk_grid"]["configuration"]["chunk_shape"]
    inner = options["chunk_shape"]
    if tuple(grid[1:]) != shape[1:] or tuple(inner[1:]) != shape[1:]:
        raise ValueError("an axis after the first is split")
    plain, *compressors = options["codecs"]
    return ArrayFormat(
        shape=shape,
        dtype=_dtype(document["data_type"], plain),
        chunk_rows=inner[0],
        shard_rows=grid[0],
        compressors=tuple(compressors),
        separator=_separator(document["chunk_key_encoding"]),
        fill_value=document["fill_value"],
        index_at_end=options.get("index_location", "end") == "end",
        index_checked=_index_checked(options["index_codecs"]),
        attributes=document.get("attributes", {}),
    )


def _dtype(name: str, codec: Codec) -> np.dtype[Any]:
    if codec["name"] != "bytes":
        raise ValueError(f"inner codec {codec['name']} instead of bytes")
    endian = codec.get("configuration", {}).get("endian", "little")
    return np.dtype(name).newbyteorder("<" if endian == "little" else ">")


def _separator(encoding: Mapping[str, Any]) -> str:
    if encoding["name"] != "default":
        raise ValueError(f"chunk key encoding {encoding['name']}")
    return str(encoding.get("configuration", {}).get("separator", "/"))


def _index_checked(codecs: Sequence[Codec]) -> bool:
    names = [codec["name"] for codec in codecs]
    if names not in (["bytes"], ["bytes", "crc32c"]):
        raise ValueError(f"index codecs {names}")
    return len(names) == 2
