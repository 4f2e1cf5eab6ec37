"""Decoders of inner chunks, one table: the Zarr v3 codec names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from numcodecs import blosc, lz4, zstd  # type: ignore[import-untyped]
from numcodecs.gzip import GZip  # type: ignore[import-untyped]

from hpcplat.datasets.shard import checksum
from hpcplat.errors import InvalidError

Bytes = npt.NDArray[np.uint8]
Decoder = Callable[[Any, Bytes | None], Any]


class ChecksumError(ValueError):
    """The crc32c behind a chunk is not that of its bytes."""


def _without_crc32c(data: Any, out: Bytes | None) -> Any:  # noqa: ANN401 (any buffer)
    raw = memoryview(data)
    body, stored = raw[:-4], raw[-4:]
    if checksum(bytes(body)) != stored:
        raise ChecksumError("its crc32c is wrong")
    if out is None:
        return body
    out[:] = np.frombuffer(body, np.uint8)
    return out


_DECODERS: Mapping[str, Decoder] = {
    # The functions below the codec objects: these spend microseconds in checks.
    "blosc": blosc.decompress,
    "zstd": zstd.decompress,
    "gzip": GZip().decode,
    "numcodecs.lz4": lz4.decompress,
    "crc32c": _without_crc32c,
}


def decoder(codecs: Sequence[Mapping[str, Any]]) -> Callable[[Any, Bytes], None]:
    """Return a function that decodes one chunk's bytes into a buffer of its size.

    ``codecs`` are the bytes-to-bytes codecs in the order of writing. The function
    releases the GIL while blosc, zstd and lz4 work; it raises ValueError or
    RuntimeError on damaged bytes.
    """
    steps = [_decoder_of(codec["name"]) for codec in reversed(codecs)]
    if not steps:
        return _copy
    *first, last = steps

    def decode(data: Any, out: Bytes) -> None:  # noqa: ANN401 (any buffer)
        step_data: Any = data
        for step in first:
            step_data = step(step_data, None)
        last(step_data, out)

    return decode


def _copy(data: Any, out: Bytes) -> None:  # noqa: ANN401 (any buffer)
    out[:] = np.frombuffer(data, np.uint8)


def _decoder_of(name: str) -> Decoder:
    if name not in _DECODERS:
        raise InvalidError(
            f"Chunks compressed with {name} cannot be read here.",
            f"Rewrite the dataset with one of: {', '.join(_DECODERS)}.",
        )
    return _DECODERS[name]


def encoder(codecs: Sequence[Mapping[str, Any]]) -> Callable[[Any], bytes]:
    """Return a function that encodes one chunk's bytes."""
    steps = [_encoder_of(codec) for codec in codecs]

    def encode(data: Any) -> bytes:  # noqa: ANN401 (any buffer)
        for step in steps:
            data = bytes(step(data))
        return bytes(data)

    return encode


def _with_crc32c(data: bytes) -> bytes:
    return data + checksum(data)


def _encoder_of(codec: Mapping[str, Any]) -> Callable[[bytes], Any]:
    name, options = codec["name"], codec.get("configuration", {})
    if name == "blosc":
        shuffle = ["noshuffle", "shuffle", "bitshuffle"].index(options["shuffle"])
        return blosc.Blosc(options["cname"], options["clevel"], shuffle).encode  # type: ignore[no-any-return]
    if name == "zstd":
        return zstd.Zstd(options["level"], options["checksum"]).encode  # type: ignore[no-any-return]
    if name == "crc32c":
        return _with_crc32c
    raise InvalidError(f"There is no compressor {name}.", "Use blosc, zstd or none.")


def compressors(name: str, itemsize: int) -> tuple[Mapping[str, Any], ...]:
    """Return the Zarr codecs of a compressor's name: none, blosc or zstd."""
    if name == "none":
        return ()
    if name == "blosc":
        options = {
            "cname": "lz4",
            "clevel": 5,
            "shuffle": "shuffle",
            "typesize": itemsize,
            "blocksize": 0,
        }
        return ({"name": "blosc", "configuration": options},)
    if name == "zstd":
        options = {"level": 3, "checksum": True}
        return ({"name": "zstd", "configuration": options},)
    raise InvalidError(f"There is no compressor {name}.", "Use none, blosc or zstd.")
