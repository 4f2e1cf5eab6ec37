"""What is believed, and for how long."""

from __future__ import annotations

import pytest

from server import remembering
from server.remembering import Remembered


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_value_is_believed_for_its_seconds() -> None:
    clock = Clock()
    known = Remembered[str, str](5.0, clock)
    assert known.get("a") is None
    assert known.keep("a", "") == ""
    clock.now = 4.9
    assert known.get("a") == ""
    clock.now = 5.0
    assert known.get("a") is None


def test_it_is_forgotten_when_told_and_when_there_is_too_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remembering, "MOST", 2)
    known = Remembered[int, int](5.0)
    for number in range(3):
        known.keep(number, number)
    assert [known.get(number) for number in range(3)] == [None, None, 2]
    known.forget()
    assert known.get(2) is None
