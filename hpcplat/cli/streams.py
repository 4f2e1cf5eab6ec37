"""The standard streams: open, whatever the shell closed, and fit for each character."""

from __future__ import annotations

import codecs
import io
import os
import sys
from typing import Final

HANDLER: Final = "hpcplat"

# What our own words and drawings become where a terminal has no such character.
_PLAIN: Final = {"…": "...", "≥": ">=", "≤": "<="} | dict(
    zip("×·●○✗━─│█░▀┌┐└┘├┤┬┴┼", "x.*ox=-|#.#+++++++++", strict=True)
)
_BRAILLE: Final = range(0x2800, 0x2900)  # the dots of a curve
_RAW_BYTES: Final = range(0xDC80, 0xDD00)  # of names that are no UTF-8 (PEP 383)


def prepare() -> None:
    """Make every text printable; what can't be shown is told in other characters.

    A standard input or error that the shell closed is as one that is empty: the next
    file that is opened would take its place, and be written to.
    """
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY))
    if sys.stderr is None and sys.stdout is not None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    codecs.register_error(HANDLER, _substitute)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=HANDLER)


def _substitute(error: UnicodeError) -> tuple[str | bytes, int]:
    """Return what stands for one character that a stream's encoding does not have."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return _plain(error.object[error.start]), error.start + 1


def _plain(character: str) -> str | bytes:
    code = ord(character)
    if code in _RAW_BYTES:
        return bytes([code - 0xDC00])
    return _PLAIN.get(character) or ("*" if code in _BRAILLE else "?")
