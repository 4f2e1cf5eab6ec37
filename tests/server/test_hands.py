"""What workers have in hand: never more than a crash may leave in doubt."""

from __future__ import annotations

import threading
import time
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


def note(hands: Hands, count: int) -> None:
    with hands.exchanging(count, 0):
        pass


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
    note(hands, 1)
    assert promise(hands, 2, []) == 1


def test_closed_hands_take_nothing_up_and_wait_for_what_is_there(hands: Hands) -> None:
    assert Hands().are_open is False
    assert promise(hands, 1, [WORK]) == 1
    timer = threading.Timer(0.05, lambda: note(hands, 1))
    timer.start()
    hands.close(patience=30)
    timer.join()
    assert promise(hands, 1, []) == 0


def test_a_wake_is_for_one_worker(hands: Hands) -> None:
    hands.wake()
    assert hands.rest(0) == ([], True)
    assert hands.rest(0) == ([], False)


def test_a_worker_claims_no_more_than_there_is_room_for(hands: Hands) -> None:
    hands.open(most=4)
    assert promise(hands, 3, [WORK, WORK, WORK]) == 3
    with hands.exchanging(0, 4) as claim:
        claim.works = [WORK]
    assert claim.room == 1
    with hands.exchanging(0, 4) as none:
        pass
    assert none.room == 0
    with hands.exchanging(2, 4) as swapped:  # what it notes makes room for its claim
        assert promise(hands, 4, []) == 0  # but not for another's before it is done
        swapped.works = [WORK]
    assert swapped.room == 2
    assert promise(hands, 4, []) == 1


def test_workers_that_exchange_at_once_do_not_hinder_each_other(hands: Hands) -> None:
    assert promise(hands, 2, [WORK, WORK]) == 2
    with hands.exchanging(1, 1) as one, hands.exchanging(1, 1) as other:
        assert (one.room, other.room) == (1, 1)
        one.works = other.works = [WORK]
    assert promise(hands, 1, []) == 0


def test_what_failed_to_be_noted_is_in_hand_still(hands: Hands) -> None:
    def fail() -> None:
        with hands.exchanging(1, 2) as claim:
            claim.works = [WORK]
            raise OSError("full")

    assert promise(hands, 1, [WORK]) == 1
    with pytest.raises(OSError, match="full"):
        fail()
    assert promise(hands, 2, []) == 1


def test_workers_stay_for_what_a_request_was_promised(hands: Hands) -> None:
    with hands.promising(1) as promised:
        closing = threading.Thread(target=hands.close, args=(30,))
        closing.start()
        while hands.are_open:
            time.sleep(0.001)
        assert hands.rest(0.01) == ([], False)
        assert not hands.are_done
        promised.works = [WORK]
    assert hands.rest(30) == ([WORK], False)
    assert not hands.are_done  # it is in hand
    note(hands, 1)
    closing.join()
    assert hands.are_done


def test_workers_leave_when_patience_is_over(hands: Hands) -> None:
    with hands.promising(1):
        resting = threading.Thread(target=hands.rest, args=(30,))
        resting.start()
        hands.close(patience=0.01)
        assert hands.are_done
        resting.join(5)
        assert not resting.is_alive()
