"""What Slurm's commands print, cut into fields: whole and readable, or an error."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Final, TypeVar

from hpcplat.errors import InvalidError, UnavailableError

T = TypeVar("T")

# What Slurm writes where it has nothing to write.
_BLANK: Final = frozenset(
    {"", "(null)", "N/A", "n/a", "none", "None", "NONE", "Unknown", "None assigned"}
)


class UnreadableError(UnavailableError):
    """A command answered, but not in a form that can be trusted."""

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(
            what, remedy or "Run the command by hand; see that no wrapper adds text."
        )


def new_separator() -> str:
    """Return a field separator that no job name or comment can hold.

    It starts with a control character, so that the commands don't take it for a
    field width, and is drawn anew for each query, so that nobody can guess it.
    """
    return f"\x1f{secrets.token_hex(6)}"


def rows(text: str, separator: str, columns: int) -> Iterator[list[str]]:
    """Cut an answer in which the separator follows EVERY field into its rows.

    Newlines inside of a field are kept: a row ends where its last field does.
    Raises UnreadableError unless the text is nothing but whole rows.
    """
    fields = text.split(separator)
    if fields.pop() not in ("", "\n") or len(fields) % columns:
        raise UnreadableError(f"An answer is not made of whole rows: {clip(text)}.")
    for start in range(0, len(fields), columns):
        row = fields[start : start + columns]
        if start:
            row[0] = _after_newline(row[0])
        yield row


def _after_newline(field: str) -> str:
    if not field.startswith("\n"):
        raise UnreadableError(f"An answer has a row that does not end: {clip(field)}.")
    return field[1:]


def read(parse: Callable[[list[str]], T], row: list[str]) -> T:
    """Return ``parse(row)``; a value that can't be right makes the row unreadable."""
    try:
        return parse(row)
    except (ValueError, InvalidError) as error:
        raise UnreadableError(
            f"A row can't be read ({error}): {clip(' | '.join(row))}."
        ) from error


def clip(text: str, length: int = 120) -> str:
    """Return the text on one line, quoted, cut where it is long: for a message."""
    return repr(text if len(text) <= length else f"{text[:length]}…")


def text_or_blank(field: str) -> str:
    """Return the field, or the empty text for Slurm's words for nothing."""
    return "" if field in _BLANK else field


def names(field: str) -> tuple[str, ...]:
    """Return the members of a comma list; Slurm's words for nothing give none."""
    return tuple(name for name in text_or_blank(field).split(",") if name)


_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}")


def parse_time(field: str) -> datetime | None:
    """Return a time that was printed under TZ=UTC; None for a word for nothing."""
    if field in _BLANK:
        return None
    if not _TIME.fullmatch(field):
        raise UnreadableError(f"{clip(field)} is not a time.")
    return datetime.fromisoformat(field).replace(tzinfo=UTC)


def parse_moment(field: str) -> datetime:
    """Return a time that must be there. Raises UnreadableError if it is not."""
    moment = parse_time(field)
    if moment is None:
        raise UnreadableError(f"{clip(field)} stands where a time must.")
    return moment


_NUMBER: Final = re.compile(r"[0-9]{1,20}")


def parse_number(field: str) -> int | None:
    """Return a whole number; None for UNLIMITED and words for nothing."""
    if field in _BLANK or field == "UNLIMITED":
        return None
    if not _NUMBER.fullmatch(field):
        raise UnreadableError(f"{clip(field)} is not a whole number.")
    return int(field)


def parse_count(field: str) -> int:
    """Return a whole number that must be there."""
    number = parse_number(field)
    if number is None:
        raise UnreadableError(f"{clip(field)} stands where a number must.")
    return number
