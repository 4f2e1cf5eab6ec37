"""The kinds of value that a job spec is made of, each refused here if it can't be."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable
from datetime import timedelta
from typing import Annotated, Any, Final, NoReturn

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from hpcplat.errors import InvalidError
from hpcplat.quantities import (
    format_duration,
    format_memory,
    parse_duration,
    parse_memory,
)

LONGEST_TIME: Final = timedelta(days=366)
MOST_MEMORY: Final = 2**40  # MiB

# Linux takes no single argument or variable of 128 KiB or more (MAX_ARG_STRLEN).
LONGEST_ARGUMENT: Final = 128 * 1024 - 256

_SPOKEN: Final = re.compile(
    r"(?:(?P<days>\d{1,6})d)?\s*(?:(?P<hours>\d{1,6})h)?\s*"
    r"(?:(?P<minutes>\d{1,8})m)?\s*(?:(?P<seconds>\d{1,9})s)?"
)
_VARIABLE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Record(BaseModel):
    """A frozen record that takes no key it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=False)


def refuse(what: str, remedy: str = "", field: str = "") -> NoReturn:
    """Refuse a value from within a validator: what is wrong, and the remedy.

    ``field`` names the field (dotted) when the validator stands on a whole record.
    """
    raise PydanticCustomError(
        "refused",
        "{what} {remedy}",  # filled by pydantic from the context
        {"what": what, "remedy": remedy, "field": field},
    )


def checked_text(text: str) -> str:
    """Return text that a process can carry: no NUL, nothing that is not UTF-8."""
    if "\0" in text:
        refuse("The value holds a NUL character.", "Leave it out.")
    if not _is_unicode(text):
        refuse("The value is not valid UTF-8.", "Save it as UTF-8.")
    return text


def argument(text: str) -> str:
    """Return text that fits into one argument or variable of a process."""
    size = len(checked_text(text).encode())
    if size > LONGEST_ARGUMENT:
        refuse(
            f"The value has {size} bytes, above the limit {LONGEST_ARGUMENT}.",
            "Put it into a file, and give the file's name.",
        )
    return text


def printable(text: str) -> str:
    """Return one line of printable text without blanks at its ends."""
    odd = next((char for char in text if _unprintable(char)), None)
    if odd is not None:
        refuse(f"{text!r} holds the control character {odd!r}.", "Leave it out.")
    if text != text.strip():
        refuse(f"{text!r} begins or ends with a blank.", f"Write {text.strip()!r}.")
    return text


def _unprintable(char: str) -> bool:
    """Return whether a character is a control, a format or a line's end."""
    category = unicodedata.category(char)
    return category[0] == "C" or category in {"Zl", "Zp"}


def plain_json(values: dict[str, Any]) -> dict[str, Any]:
    """Return values that JSON can carry: finite numbers, and text that is UTF-8."""
    _check_plain("", values)
    return values


def _check_plain(field: str, value: object) -> None:
    """Refuse what JSON can't carry within a value, by its dotted path."""
    parts: Iterable[tuple[object, object]] = ()
    if isinstance(value, float) and not math.isfinite(value):
        refuse(f"{value} is not a finite number.", "Write one that is.", field)
    elif isinstance(value, str) and not _is_unicode(value):
        refuse(f"{value!r} is not valid UTF-8.", "Write it in UTF-8.", field)
    elif isinstance(value, dict):
        parts = value.items()
    elif isinstance(value, list):
        parts = enumerate(value)
    for name, part in parts:
        _check_plain(f"{field}.{name}".lstrip("."), part)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _count(value: Any) -> Any:  # noqa: ANN401 - whatever stood in the file
    if isinstance(value, bool):
        refuse(f"{str(value).lower()} is not a number.", "Write a whole number.")
    return value


def _duration(value: Any) -> timedelta:  # noqa: ANN401
    if isinstance(value, timedelta):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)  # minutes, as sbatch has it
    if not isinstance(value, str):
        refuse(f"{value!r} is not a duration.", "Write 90m, 12h, 2d or 1-12:00:00.")
    spoken = _SPOKEN.fullmatch(value.strip().lower())
    if spoken and any(spoken.groups()):
        return timedelta(**{k: int(v or 0) for k, v in spoken.groupdict().items()})
    if value.strip().upper() in {"UNLIMITED", "INFINITE"}:
        refuse(
            f"{value} is no end: it blocks backfill and maintenance.",
            "Give a finite time, such as 12h.",
        )
    try:
        return parse_duration(value)
    except InvalidError as error:
        refuse(error.what, "Write 90m, 12h, 2d or 1-12:00:00.")


def _within_year(duration: timedelta) -> timedelta:
    if not timedelta(0) <= duration <= LONGEST_TIME:
        refuse(
            f"{duration} is outside 0 to {LONGEST_TIME.days} days.",
            f"Give at most {LONGEST_TIME.days}d.",
        )
    return duration


def _time_limit(duration: timedelta) -> timedelta:
    if duration < timedelta(minutes=1):
        refuse(f"{duration} is below Slurm's shortest limit of 1 minute.", "Give 1m.")
    return duration


def _memory(value: Any) -> Any:  # noqa: ANN401
    if not isinstance(value, str):
        return _count(value)
    try:
        return parse_memory(value)
    except InvalidError as error:
        refuse(error.what, error.remedy)


def _within_exbibyte(mib: int) -> int:
    if mib > MOST_MEMORY:
        told, most = format_memory(mib), format_memory(MOST_MEMORY)
        refuse(f"{told} is above the limit {most}.", f"Give at most {most}.")
    return mib


def _variable_name(name: str) -> str:
    if not _VARIABLE_NAME.fullmatch(name):
        refuse(
            f"{name!r} is not a variable's name.",
            "Use letters, digits and _, not beginning with a digit.",
        )
    return name


def _variable_value(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, bool | float):
        refuse(
            f"{value} is not text, and could be spelled in several ways.",
            f'Put it in quotes, such as "{str(value).lower()}".',
        )
    return str(value) if isinstance(value, int) else value


def _words(value: Any) -> Any:  # noqa: ANN401
    """Take a single text for a list of one."""
    return (value,) if isinstance(value, str) else value


def _pattern(characters: str) -> Any:  # noqa: ANN401 - a pydantic constraint
    return Field(pattern=rf"^[A-Za-z0-9]{characters}*$", min_length=1, max_length=255)


_DURATION_SCHEMA = {
    "type": "string",
    "description": "A duration: 90m, 12h, 2d, 1-12:00:00; a bare number is minutes.",
    "examples": ["12h", "1-12:00:00"],
}

Text = Annotated[str, AfterValidator(checked_text)]
Argument = Annotated[str, AfterValidator(argument)]
Line = Annotated[
    str,
    Field(min_length=1, max_length=255),
    AfterValidator(checked_text),
    AfterValidator(printable),
]
PathText = Annotated[
    str,
    Field(min_length=1, max_length=4096),
    AfterValidator(checked_text),
    AfterValidator(printable),
]
Word = Annotated[str, _pattern("[A-Za-z0-9_.:+-]")]
Words = Annotated[str, _pattern("[A-Za-z0-9_.:+,-]")]
Constraint = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9_.,&|!*()\[\]:@=+-]+$", max_length=1024)
]
Hosts = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.,\[\]-]*$", max_length=4096)
]
HostList = Annotated[tuple[Hosts, ...], BeforeValidator(_words)]
Lines = Annotated[tuple[Line, ...], BeforeValidator(_words)]
PathTexts = Annotated[tuple[PathText, ...], BeforeValidator(_words)]

Count = Annotated[int, BeforeValidator(_count), Field(ge=1, le=1_000_000)]
CountFromZero = Annotated[int, BeforeValidator(_count), Field(ge=0, le=1_000_000)]

Duration = Annotated[
    timedelta,
    BeforeValidator(_duration),
    AfterValidator(_within_year),
    PlainSerializer(format_duration, return_type=str, when_used="json"),
    WithJsonSchema(_DURATION_SCHEMA),
]
TimeLimit = Annotated[Duration, AfterValidator(_time_limit)]
Memory = Annotated[
    int,
    Field(ge=1),
    BeforeValidator(_memory),
    AfterValidator(_within_exbibyte),
    PlainSerializer(format_memory, return_type=str, when_used="json"),
    WithJsonSchema(
        {
            "type": "string",
            "description": "Memory of a node: 64G, 4000M; a bare number is MiB.",
            "examples": ["64G"],
        }
    ),
]
VariableName = Annotated[str, AfterValidator(_variable_name)]
VariableValue = Annotated[
    str, BeforeValidator(_variable_value), AfterValidator(argument)
]
