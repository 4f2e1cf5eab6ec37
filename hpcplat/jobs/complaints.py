"""What is wrong with a spec, in one line each: the field, the value, the remedy."""

from __future__ import annotations

import difflib
import re
import types
from dataclasses import dataclass
from typing import Any, Final, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from hpcplat.errors import InvalidError

LONGEST_VALUE: Final = 60

_TO_WHOLE_NUMBER = ("{value} is not a whole number.", "Write it in digits.")
_TO_BOOL = ("{value} is neither true nor false.", "Write true or false.")
_TO_GROUP = ("{value} is not a group of keys.", "Write it as key: value.")
_TO_LIST = ("{value} is not a list.", "Write it as a list: [a, b].")
_TO_DATE = ("{value} is not a date.", "Write 2026-01-31, or 2026-01-31T12:00:00Z.")
_TO_CHOICE = ("{value} is not known.", "{near}It is one of {expected}.")

# What pydantic adds to a path for itself: the branch of a union, the key of a dict.
_INNER: Final = re.compile(r"\(\w+\)$|\[key\]$|(function-\w+|literal|tuple)\[")

# pydantic's type of error -> what is wrong, and the remedy.
WORDS: Final = {
    "missing": ("It is missing.", "Give it."),
    "extra_forbidden": ("There is no such key.", ""),
    "json_invalid": ("It is not JSON: {error}.", "Mend it."),
    "greater_than_equal": (
        "{value} is below the limit {ge}.",
        "The nearest that would do is {ge}.",
    ),
    "less_than_equal": (
        "{value} is above the limit {le}.",
        "The nearest that would do is {le}.",
    ),
    "string_type": ("{value} is not text.", "Put it in quotes."),
    "int_type": _TO_WHOLE_NUMBER,
    "int_parsing": _TO_WHOLE_NUMBER,
    "int_parsing_size": _TO_WHOLE_NUMBER,
    "int_from_float": _TO_WHOLE_NUMBER,
    "finite_number": ("{value} is not a finite number.", "Write one that is."),
    "string_unicode": ("{value} is not valid UTF-8.", "Write it in UTF-8."),
    "bool_type": _TO_BOOL,
    "bool_parsing": _TO_BOOL,
    **dict.fromkeys(("datetime_parsing", "datetime_from_date_parsing"), _TO_DATE),
    **dict.fromkeys(("datetime_type", "datetime_object_invalid"), _TO_DATE),
    "literal_error": _TO_CHOICE,
    "enum": _TO_CHOICE,
    "string_pattern_mismatch": (
        "{value} is not allowed here.",
        "Write something that matches {pattern}",
    ),
    "string_too_long": (
        "{value} is too long.",
        "Use at most {max_length} characters.",
    ),
    "string_too_short": ("It is empty.", "Say something, or leave it out."),
    "model_type": _TO_GROUP,
    "model_attributes_type": _TO_GROUP,
    "dict_type": _TO_GROUP,
    "tuple_type": _TO_LIST,
    "list_type": _TO_LIST,
}


@dataclass(frozen=True, slots=True)
class Complaint:
    """One thing that is wrong: the field's dotted path, what, and the remedy."""

    field: str
    what: str
    remedy: str

    def __str__(self) -> str:
        """Return it as one line."""
        where = f"{self.field}: " if self.field else ""
        return f"{where}{self.what} {self.remedy}".strip()


class SpecError(InvalidError):
    """A spec that cannot be right; ``complaints`` holds each fault by itself."""

    def __init__(self, complaints: tuple[Complaint, ...]) -> None:
        super().__init__("\n".join(map(str, complaints)))
        self.complaints = complaints


def spec_error(error: ValidationError, model: type[BaseModel]) -> SpecError:
    """Return pydantic's complaints about ``model`` in our words, each one once."""
    found = (_complaint(detail, model) for detail in error.errors())
    return SpecError(tuple({c.field: c for c in reversed(list(found))}.values())[::-1])


def _complaint(detail: ErrorDetails, model: type[BaseModel]) -> Complaint:
    path = tuple(part for part in detail["loc"] if not _INNER.match(str(part)))
    context: dict[str, Any] = detail.get("ctx", {})
    own = str(context.get("field", ""))
    field = ".".join([*map(str, path), own] if own else map(str, path))
    if detail["type"] == "refused":
        return Complaint(field, context["what"], context["remedy"])
    if detail["type"] == "extra_forbidden":
        return Complaint(field, "There is no such key.", _nearest_key(path, model))
    what, remedy = in_words(detail)
    return Complaint(field, what, remedy)


def in_words(detail: ErrorDetails) -> tuple[str, str]:
    """Return what is wrong, and the remedy, for one of pydantic's own complaints."""
    template = WORDS.get(detail["type"])
    value = shown(detail["input"])
    context: dict[str, Any] = detail.get("ctx", {})
    if template is None:
        return f"{value}: {detail['msg']}.", ""
    what, remedy = template
    if "expected" in context:
        context = {**context, "near": _nearest_choice(detail, context["expected"])}
    return what.format(value=value, **context), remedy.format(value=value, **context)


def _nearest_choice(detail: ErrorDetails, expected: str) -> str:
    choices = re.findall(r"'([^']*)'", expected)
    near = difflib.get_close_matches(str(detail["input"]), choices, 1, 0.5)
    return f"The nearest is {near[0]}. " if near else ""


def shown(value: object) -> str:
    """Return a value as it stood there, short enough for a line."""
    text = repr(value) if isinstance(value, str) else str(value)
    text = " ".join(text.split())
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"


def _nearest_key(path: tuple[int | str, ...], model: type[BaseModel]) -> str:
    known = sorted(_record_at(path[:-1], model).model_fields)
    near = difflib.get_close_matches(str(path[-1]), known, 1, 0.5)
    if near:
        return f"The nearest is {near[0]}."
    return f"It is one of {', '.join(known)}."


def _record_at(path: tuple[int | str, ...], model: type[BaseModel]) -> type[BaseModel]:
    """Return the record class that stands at ``path`` of ``model``."""
    for part in path:
        field = model.model_fields.get(str(part))
        inner = record_in(field.annotation) if field else None
        model = inner or model
    return model


def record_in(annotation: Any) -> type[BaseModel] | None:  # noqa: ANN401
    """Return the record class within an annotation (``X | None``, ``tuple[X, ...]``)."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in {Union, types.UnionType, tuple} or get_args(
        annotation
    ):
        found = (record_in(part) for part in get_args(annotation))
        return next(filter(None, found), None)
    return None
