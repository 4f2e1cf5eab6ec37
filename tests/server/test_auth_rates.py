"""How often somebody may ask."""

from __future__ import annotations

import pytest

from server import auth_rates
from server.auth_rates import Rates, TooManyError


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_then_a_steady_rate_for_each_alone() -> None:
    clock = Clock()
    rates = Rates(2, 3, clock)
    for _ in range(3):
        rates.take("alice")
    with pytest.raises(TooManyError) as raised:
        rates.take("alice")
    assert raised.value.wait == 0.5
    rates.take("bob")
    clock.now += 0.5
    rates.take("alice")
    with pytest.raises(TooManyError):
        rates.take("alice")


def test_no_rate_is_no_limit() -> None:
    rates = Rates(0, 0, Clock())
    for _ in range(100):
        rates.take("alice")


def test_what_is_kept_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth_rates, "MOST_KEPT", 10)
    clock = Clock()
    rates = Rates(1, 2, clock)
    for number in range(100):
        rates.take(str(number))
        clock.now += 1
    assert len(rates._buckets) <= 11
