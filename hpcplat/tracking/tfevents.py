"""TensorBoard's event files, read without TensorBoard or protobuf.

The framing is TFRecord (length, its CRC, data, its CRC); the data is the protobuf
message Event of tensorboard/compat/proto/event.proto and summary.proto. Only what
curves, texts, histograms and images need is read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from hpcplat.errors import InvalidError
from hpcplat.tracking.values import Distribution, Image

CHUNK: Final = 4 * 1024 * 1024
LARGEST: Final = 64 * 1024 * 1024  # bytes of one event
_FLOAT, _DOUBLE, _STRING = 1, 2, 7  # DataType in tensor types.proto


class TensorBoardValue(NamedTuple):
    """A value of an event file; ``time`` is Unix time in seconds."""

    time: float
    step: int
    name: str
    value: float | str | Distribution | Image


class NoEventFileError(InvalidError):
    """The file is not TensorBoard's, or is damaged from here on."""


Fields: TypeAlias = dict[int, list[Any]]


def read_events(path: Path, offset: int = 0) -> tuple[list[TensorBoardValue], int]:
    """Return the values from ``offset`` on, some megabytes, and the offset after them.

    A last event that is not whole yet is left for the next call. Raises
    NoEventFileError where the framing is broken.
    """
    with path.open("rb") as file:
        file.seek(offset)
        data = file.read(CHUNK)
        while len(data) >= 8 and _length(data, 0) + 16 > len(data):
            more = file.read(CHUNK)
            if not more:
                break
            data += more
    values: list[TensorBoardValue] = []
    position = 0
    for end, event in _frames(data):
        values += _values(event)
        position = end
    return values, offset + position


def _frames(data: bytes) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position + 12 <= len(data):
        length = _length(data, position)
        end = position + 12 + length + 4
        if end > len(data):
            return
        yield end, data[position + 12 : position + 12 + length]
        position = end


def _length(data: bytes, position: int) -> int:
    (length,) = struct.unpack_from("<Q", data, position)
    if length > LARGEST:
        raise NoEventFileError(
            "This is no event file of TensorBoard, or a damaged one."
        )
    return int(length)


def _values(event: bytes) -> Iterator[TensorBoardValue]:
    """Yield the values of one Event: wall_time = 1, step = 2, summary = 5."""
    fields = _fields(event)
    time = _double(fields, 1)
    step = _signed(fields.get(2, [0])[0])
    for summary in fields.get(5, []):
        for value in _fields(summary).get(1, []):
            inner = _fields(value)
            name = inner.get(1, [b""])[0].decode(errors="replace")
            found = _value(inner)
            if name and found is not None:
                yield TensorBoardValue(time, step, name, found)


def _value(fields: Fields) -> float | str | Distribution | Image | None:
    """Read Summary.Value: simple_value = 2, image = 4, histo = 5, tensor = 8."""
    if 2 in fields:
        (number,) = struct.unpack("<f", fields[2][0])
        return float(number)
    if 4 in fields:
        encoded = _fields(fields[4][0]).get(4)
        return Image(encoded[0]) if encoded else None
    if 5 in fields:
        return _histogram(_fields(fields[5][0]))
    return _tensor(_fields(fields[8][0])) if 8 in fields else None


def _tensor(fields: Fields) -> float | str | None:
    """Read a scalar TensorProto: dtype = 1, content = 4, float = 5, string = 8."""
    kind = fields.get(1, [0])[0]
    if kind == _STRING and 8 in fields:
        text: bytes = fields[8][0]
        return text.decode(errors="replace")
    form = {_FLOAT: "<f", _DOUBLE: "<d"}.get(kind)
    content = b"".join(fields.get(4, fields.get(5, fields.get(6, []))))
    if form is None or len(content) != struct.calcsize(form):
        return None
    return float(struct.unpack(form, content)[0])


def _histogram(fields: Fields) -> Distribution | None:
    """Read HistogramProto: bucket_limit = 6, bucket = 7; its buckets grow in width.

    They are put into equal bins: each bucket's count goes where its middle lies.
    """
    limits, counts = (_doubles(fields.get(number, [])) for number in (6, 7))
    low, high = _double(fields, 1), _double(fields, 2)
    if len(limits) != len(counts) or not high > low:
        return None
    bins = [0] * 64
    before = low
    for limit, count in zip(limits, counts, strict=True):
        middle = (min(max(before, low), high) + min(max(limit, low), high)) / 2
        bins[min(int((middle - low) / (high - low) * 64), 63)] += int(count)
        before = limit
    return Distribution.of_counts(bins, low, high)


def _double(fields: Fields, number: int) -> float:
    found = fields.get(number)
    return float(struct.unpack("<d", found[0])[0]) if found else 0.0


def _doubles(parts: list[bytes]) -> list[float]:
    packed = b"".join(parts)
    return list(struct.unpack(f"<{len(packed) // 8}d", packed))


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _fields(message: bytes) -> Fields:
    """Return a protobuf message's fields by number, in the wire's own types."""
    found: Fields = {}
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        value, position = _wire(message, position, key & 7)
        found.setdefault(key >> 3, []).append(value)
    return found


def _wire(message: bytes, position: int, kind: int) -> tuple[Any, int]:
    if kind == 0:
        return _varint(message, position)
    if kind == 2:
        size, position = _varint(message, position)
    else:
        size = {1: 8, 5: 4}.get(kind, LARGEST)
    end = position + size
    if end > len(message):
        raise NoEventFileError("An event is damaged: a field goes beyond its end.")
    return message[position:end], end


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(message) and shift < 70:
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise NoEventFileError("An event is damaged: a number has no end.")
