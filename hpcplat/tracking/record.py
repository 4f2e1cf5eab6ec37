"""One line of a metrics file: a checksum and a record as JSON.

``CRC32 of the JSON as 8 hex digits, space, JSON, newline``. Numbers that JSON has no
word for are the strings "NaN", "Infinity" and "-Infinity", so that any JSON reader
takes the rest.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Opened:
    """A writer began. ``time`` is Unix time in seconds, in all records."""

    time: float
    attempt: int
    source: str
    rank: int
    host: str
    process: int


@dataclass(frozen=True, slots=True)
class Lost:
    """The writer had to let go of ``count`` values in all; ``reason`` in words."""

    time: float
    count: int
    reason: str


@dataclass(frozen=True, slots=True)
class Numbers:
    """Values of one step by name."""

    time: float
    step: int
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Text:
    """A text at one step."""

    time: float
    step: int
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts in equal bins from ``low`` to ``high``; values that were not finite."""

    time: float
    step: int
    name: str
    counts: tuple[int, ...]
    low: float
    high: float
    not_finite: int = 0


@dataclass(frozen=True, slots=True)
class Media:
    """An image or a figure: a file in the run folder's media, named by its content."""

    time: float
    step: int
    name: str
    file: str
    media_type: str
    caption: str = ""


Record: TypeAlias = Opened | Lost | Numbers | Text | Histogram | Media

_KINDS: dict[str, type[Any]] = {
    kind.__name__.lower(): kind for kind in (Opened, Lost, Text, Histogram, Media)
}
_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_strict = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


def encode(record: Record) -> bytes:
    """Return the line of ``record``, newline included."""
    content: dict[str, Any]
    if isinstance(record, Numbers):  # the hot one: short, and not through asdict
        time = round(record.time, 6)
        content = {"step": record.step, "time": time, "values": record.values}
    else:
        content = {"kind": type(record).__name__.lower(), **asdict(record)}
    try:
        body = _strict(content).encode()
    except ValueError:  # a number is not finite
        body = _strict(_spelled(content)).encode()
    return b"%08x %b\n" % (zlib.crc32(body), body)


def decode(line: bytes) -> Record | None:
    """Return the record of a line, with or without its newline; None if damaged.

    A kind that a newer release wrote is None too.
    """
    body = line[9:].rstrip(b"\n")
    try:
        if line[8:9] != b" " or int(line[:8], 16) != zlib.crc32(body):
            return None
        return _record(json.loads(body))
    except (
        *(ValueError, TypeError, KeyError, AttributeError),
        *(OverflowError, RecursionError),
    ):
        return None


def _record(content: dict[str, Any]) -> Record | None:
    kind = content.pop("kind", "")
    if not kind:
        values: dict[str, Any] = content["values"]
        for name, value in values.items():
            if value.__class__ is not float:
                values[name] = _number(value)
        return Numbers(content["time"], content["step"], values)
    if kind == "histogram":
        content["counts"] = tuple(content["counts"])
    found = _KINDS.get(kind)
    return None if found is None else found(**content)


def _number(value: float | str) -> float:
    return _WORDS[value] if isinstance(value, str) else float(value)


def _spelled(content: Any) -> Any:  # noqa: ANN401  # any JSON value
    """Return ``content`` with its numbers that are not finite as words."""
    if isinstance(content, float):
        return content if math.isfinite(content) else _word(content)
    if isinstance(content, Mapping):
        return {key: _spelled(value) for key, value in content.items()}
    return content


def _word(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
