"""The demo's numbers come from the run's own records, and say what they show."""

from __future__ import annotations

from hpcplat.demo.report import (
    PlainSlurm,
    Recovery,
    first_new_step_after,
    recovery_lines,
    redone_steps,
    weights_digest,
)
from hpcplat.tracking.curves import Curve, History, Point


def logged(points: list[Point], superseded: list[Point]) -> History:
    curve = Curve("loss", points=points, superseded=superseded)
    return History((curve,), (), (), ("loss",))


# Steps 1 and 2, a failure at 25.0, step 2 again, step 3.
TWICE = logged(
    [Point(1, 5.0, 10.0, 1), Point(2, 4.0, 27.0, 1), Point(3, 3.0, 28.0, 1)],
    [Point(2, 4.0, 20.0, 1)],
)


def test_a_step_done_again_is_no_new_step() -> None:
    assert first_new_step_after(TWICE, 25.0) == 28.0


def test_none_when_nothing_came_after() -> None:
    assert first_new_step_after(TWICE, 30.0) is None


def test_redone_steps_and_whether_their_bits_agree() -> None:
    assert redone_steps(TWICE) == (1, True)
    other = logged([Point(2, 4.0, 27.0, 1)], [Point(2, 4.0000001, 20.0, 1)])
    assert redone_steps(other) == (1, False)
    assert redone_steps(logged([Point(1, 5.0, 10.0, 1)], [])) == (0, True)


def test_plain_slurm_waits_for_the_timeout_and_the_delay() -> None:
    assert PlainSlurm(timeout=300, delay=120).seconds == 420


def test_other_bits_are_cried_out() -> None:
    found = Recovery("n2", "n3", "Resumed.", 0.1, 2.0, 4, same_bits=False)
    lines = list(recovery_lines(found, PlainSlurm(300, 120)))
    assert "Steps done again: 4, WITH OTHER BITS." in lines


def test_no_lost_step_is_claimed_only_when_none_was_redone() -> None:
    found = Recovery("n2", "n3", "Resumed.", 0.1, 2.0, 0, same_bits=True)
    assert "Steps lost: none." in list(recovery_lines(found, PlainSlurm(300, 120)))


def test_the_digest_depends_on_every_tensor_and_on_no_order() -> None:
    one = {"tensors": {"a": {"digest": "1"}, "b": {"digest": "2"}}}
    turned = {"tensors": {"b": {"digest": "2"}, "a": {"digest": "1"}}}
    other = {"tensors": {"a": {"digest": "1"}, "b": {"digest": "3"}}}
    assert weights_digest(one) == weights_digest(turned)
    assert weights_digest(one) != weights_digest(other)
