"""Orders for a job are given once, then not for a while."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from server.spacing import Spacing

NOW = datetime(2026, 3, 1, tzinfo=UTC)
PAUSE = timedelta(seconds=10)


def test_an_order_is_due_again_after_the_pause() -> None:
    spacing = Spacing(PAUSE)
    assert spacing.is_due("7", NOW)
    assert not spacing.is_due("7", NOW + PAUSE / 2)
    assert spacing.is_due("7_1", NOW + PAUSE / 2)
    assert spacing.is_due("7", NOW + PAUSE)


def test_what_is_forgotten_is_due_with_its_tasks_alone() -> None:
    spacing = Spacing(PAUSE)
    for address in ("7", "7_1", "77"):
        assert spacing.is_due(address, NOW)
    spacing.forget(7)
    assert spacing.is_due("7", NOW)
    assert spacing.is_due("7_1", NOW)
    assert not spacing.is_due("77", NOW)
