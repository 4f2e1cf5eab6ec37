from __future__ import annotations

import pytest

from hpcplat.errors import InvalidError
from storage.ingest.expression import Filter

RECORD = {"text": "one two three", "length": 13, "language": "en", "score": 0.5}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("length > 10", True),
        ("length > 10 and language != 'en'", False),
        ("5 < length <= 13", True),
        ("language in ('de', 'en')", True),
        ("language not in ['de', 'en'] or words(text) == 3", True),
        ("not startswith(lower(text), 'One')", True),
        ("score * 2 + 1 == 2 and -score < 0", True),
        ("count(text, 't') / length < 0.1", False),
        ("len(text) % 2 == 1", True),
        ("score is not None", True),
    ],
)
def test_what_people_write(text: str, holds: bool) -> None:
    assert Filter(text).holds(RECORD) is holds


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "text.upper()",
        "open('x')",
        "(lambda: 1)()",
        "[x for x in text]",
        "text[0]",
        "f'{text}'",
        "2 ** 999999",
        "len(obj=text)",
        "length >",
        "a" * 2000,
    ],
)
def test_what_is_not_allowed(text: str) -> None:
    with pytest.raises(InvalidError):
        Filter(text)


@pytest.mark.parametrize(
    "text", ["missing > 1", "text > 1", "length / 0 > 1", "9 * text"]
)
def test_what_does_not_fit_the_record(text: str) -> None:
    with pytest.raises(InvalidError):
        Filter(text).holds(RECORD)
