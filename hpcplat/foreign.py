"""What somebody else wrote: JSON that is an object or nothing, words that do no harm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final


def read_object(content: bytes | str) -> dict[str, Any] | None:
    """Return the object that a JSON text holds; None if it holds none.

    Not even what is nested without end raises anything. A number that is none (Python
    writes NaN and Infinity) becomes None: JSON has no such word.
    """
    try:
        text = content.decode() if isinstance(content, bytes) else content
        found = _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def object_in(path: Path) -> dict[str, Any] | None:
    """Return the object that a JSON file holds; None where it, or an object, is not.

    Raises OSError where it can't be read.
    """
    try:
        return read_object(path.read_bytes())
    except FileNotFoundError:
        return None


def printable(text: str, instead: str = " ") -> str:
    """Return a text without what moves a terminal's cursor, or no database keeps."""
    return "".join(letter if letter.isprintable() else instead for letter in text)


_DECODER: Final = json.JSONDecoder(parse_constant=lambda _word: None)
