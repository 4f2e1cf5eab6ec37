"""What somebody else wrote: JSON that is an object or nothing, words that do no harm."""

from __future__ import annotations

import json
from typing import Any, NoReturn


def read_object(content: bytes | str) -> dict[str, Any] | None:
    """Return the object that a JSON text holds; None if it holds none.

    Not even what is nested without end, or a number that is none, raises anything.
    """
    try:
        found = json.loads(content, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def printable(text: str, instead: str = " ") -> str:
    """Return a text without what moves a terminal's cursor, or no database keeps."""
    return "".join(letter if letter.isprintable() else instead for letter in text)


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")
