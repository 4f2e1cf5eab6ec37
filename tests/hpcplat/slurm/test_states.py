"""The table of states: every word in every form, and what is final."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcplat.slurm.answers import UnreadableError
from hpcplat.slurm.states import (
    TABLE,
    BaseState,
    JobState,
    StateWord,
    has_ended,
    is_final,
    may_come_back,
    parse_state,
)

states = st.builds(
    JobState,
    st.sampled_from(BaseState),
    st.frozensets(st.sampled_from([row.word for row in TABLE if row.flag])),
)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.word)
def test_every_word_is_read_long_and_compact(row: StateWord) -> None:
    expected = JobState(row.base, frozenset({row.word} if row.flag else ()))
    assert parse_state(row.word) == expected
    assert parse_state(row.word.lower()) == expected
    if row.compact:
        assert parse_state(row.compact) == expected


def test_no_word_is_there_twice() -> None:
    words = [row.word for row in TABLE] + [row.compact for row in TABLE if row.compact]
    assert len(words) == len(set(words))
    assert {row.base for row in TABLE if not row.flag} == set(BaseState)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("CANCELLED by 1001", JobState(BaseState.CANCELLED)),
        (["PENDING"], JobState(BaseState.PENDING)),
        (
            ["CANCELLED", "COMPLETING"],
            JobState(BaseState.CANCELLED, frozenset({"COMPLETING"})),
        ),
        (
            ["PENDING", "BRAND_NEW_FLAG"],
            JobState(BaseState.PENDING, frozenset({"BRAND_NEW_FLAG"})),
        ),
        (
            "PENDING,REQUEUE_HOLD",
            JobState(BaseState.PENDING, frozenset({"REQUEUE_HOLD"})),
        ),
        ("COMPLETING", JobState(BaseState.RUNNING, frozenset({"COMPLETING"}))),
    ],
)
def test_other_forms(answer: str | list[str], expected: JobState) -> None:
    assert parse_state(answer) == expected


@pytest.mark.parametrize("answer", ["", "BRAND_NEW", [], ["BRAND_NEW"], "+", "None"])
def test_an_unknown_state_is_not_guessed(answer: str | list[str]) -> None:
    with pytest.raises(UnreadableError, match="unknown job state"):
        parse_state(answer)


@given(states)
def test_a_state_survives_its_own_text(state: JobState) -> None:
    assert parse_state(str(state)) == state


@pytest.mark.parametrize(
    ("word", "final", "back"),
    [
        ("PENDING", False, False),
        ("RUNNING", False, False),
        ("SUSPENDED", False, False),
        ("COMPLETED", True, False),
        ("FAILED", True, False),
        ("CANCELLED", True, False),
        ("TIMEOUT", True, False),
        ("OUT_OF_MEMORY", True, False),
        ("DEADLINE", True, False),
        ("REVOKED", True, False),
        ("NODE_FAIL", False, True),
        ("PREEMPTED", False, True),
        ("BOOT_FAIL", False, True),
        ("REQUEUED", False, True),
        ("REQUEUE_HOLD", False, True),
        ("SPECIAL_EXIT", False, True),
        ("COMPLETING", False, False),
        ("CONFIGURING", False, False),
        ("RESIZING", False, False),
        ("COMPLETED+COMPLETING", False, False),
        ("FAILED+REQUEUED", False, True),
    ],
)
def test_what_is_final_and_what_may_come_back(
    word: str, final: bool, back: bool
) -> None:
    state = parse_state(word)
    assert is_final(state) is final
    assert may_come_back(state) is back


@given(states)
def test_final_means_ended_and_gone(state: JobState) -> None:
    if is_final(state):
        assert has_ended(state)
        assert not may_come_back(state)
    if state.base in {BaseState.PENDING, BaseState.RUNNING, BaseState.SUSPENDED}:
        assert not has_ended(state)
