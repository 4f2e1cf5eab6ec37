"""What workers have in hand: never more than a crash may leave in doubt."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

import pytest

from server.hands import Hands
from server.queries.submissions import Work

WORK = Work(
    submission_id=1,
    job_id="j",
    cluster="fake",
    key="k",
    part=0,
    tries=1,
    claim="c",
    claimed_at=datetime(2026, 3, 1, tzinfo=UTC),
    spec={},
    folder="/nowhere",
    user="alice",
    account="",
    attempts=0,
)


@pytest.fixture
def hands() -> Hands:
    made = Hands()
    made.open(most=2)
    return made


def promise(hands: Hands, wanted: int, works: list[Work]) -> int:
    with hands.promising(wanted) as promised:
        promised.works = works
    return promised.room


def test_what_was_claimed_is_handed_over_when_the_transaction_is_done(
    hands: Hands,
) -> None:
    with hands.promising(1) as promised:
        promised.works = [WORK]
        assert hands.take() == []
    assert hands.rest(0) == ([WORK], False)
    assert hands.rest(0) == ([], False)


def test_nothing_is_handed_over_when_the_transaction_failed(hands: Hands) -> None:
    def fail() -> None:
        with hands.promising(2) as promised:
            promised.works = [WORK]
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        fail()
    assert hands.take() == []
    assert promise(hands, 5, []) == 2


def test_there_is_room_for_what_has_been_noted(hands: Hands) -> None:
    assert promise(hands, 2, [WORK, WORK]) == 2
    assert promise(hands, 1, []) == 0
    hands.hold(-1)
    assert promise(hands, 2, []) == 1


def test_closed_hands_take_nothing_up_and_wait_for_what_is_there(hands: Hands) -> None:
    assert Hands().are_open is False
    assert promise(hands, 1, [WORK]) == 1
    timer = threading.Timer(0.05, lambda: hands.hold(-1))
    timer.start()
    hands.close(patience=30)
    timer.join()
    assert promise(hands, 1, []) == 0


def test_a_wake_is_for_one_worker(hands: Hands) -> None:
    hands.wake()
    assert hands.rest(0) == ([], True)
    assert hands.rest(0) == ([], False)
