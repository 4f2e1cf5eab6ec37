"""The step journal: equal bits on the same layout, near numbers on another."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcplat.checkpoints.proof import ResumeMismatchError
from hpcplat.journal import Conditions, Entry, Journal, read

HERE = Conditions("tp2 pp2", 4, exact=True)
ELSEWHERE = Conditions("data parallel only", 4, exact=True)
ENTRY = Entry(1, "00ab", 3.25, 1.5, 1e-3)


def steps(count: int) -> list[Entry]:
    return [replace(ENTRY, step=n, loss=3.0 / n) for n in range(1, count + 1)]


def written(folder: Path, conditions: Conditions = HERE) -> None:
    journal = Journal(folder, conditions)
    for entry in steps(5):
        journal.record(entry)
    journal.close()


def test_steps_run_again_with_equal_bits_pass(tmp_path: Path) -> None:
    written(tmp_path)
    again = Journal(tmp_path, HERE)
    for entry in steps(7)[2:]:
        again.record(entry)
    assert again.compared == 3


NEXT = math.nextafter(3.0, 4.0)


@pytest.mark.parametrize(
    ("changed", "quantity"),
    [
        ({"loss": NEXT}, "loss"),
        ({"grad_norm": math.nextafter(1.5, 2)}, "gradient norm"),
        ({"grad_norm": math.nan}, "gradient norm"),
        ({"samples": "00ac"}, "samples"),
        ({"learning_rate": 2e-3}, "learning rate"),
        ({"loss_scale": 2.0}, "loss scale"),
    ],
)
def test_the_first_bit_that_differs_is_told(
    tmp_path: Path, changed: dict[str, Any], quantity: str
) -> None:
    written(tmp_path)
    again = Journal(tmp_path, HERE)
    with pytest.raises(ResumeMismatchError, match=f"Step 1 .* its {quantity} is not"):
        again.record(replace(steps(1)[0], **changed))
    assert read(again.path)[1].entry == steps(1)[0], "the next try is held against it"


def test_on_another_layout_numbers_may_be_near_but_samples_equal(
    tmp_path: Path,
) -> None:
    written(tmp_path)
    again = Journal(tmp_path, ELSEWHERE)
    again.record(replace(steps(1)[0], loss=3.0 + 2e-6, grad_norm=1.5001))
    with pytest.raises(ResumeMismatchError, match="loss is not the same within"):
        again.record(replace(steps(2)[1], loss=1.5001))
    with pytest.raises(ResumeMismatchError, match="samples"):
        again.record(replace(steps(3)[2], samples="00ac"))


def test_where_the_layout_decides_what_is_drawn_losses_prove_nothing(
    tmp_path: Path,
) -> None:
    """Dropout: on another layout other units are left out."""
    written(tmp_path, replace(HERE, draws=True))
    again = Journal(tmp_path, replace(ELSEWHERE, draws=True))
    again.record(replace(steps(1)[0], loss=2.9))
    with pytest.raises(ResumeMismatchError, match="samples"):
        again.record(replace(steps(2)[1], samples="00ac"))
    here = Journal(tmp_path, replace(HERE, draws=True))
    with pytest.raises(ResumeMismatchError, match="loss is not the same bit for bit"):
        here.record(replace(steps(3)[2], loss=0.9))


def test_on_another_layout_ten_steps_must_be_near_and_then_only_samples_equal(
    tmp_path: Path,
) -> None:
    first = Journal(tmp_path, HERE)
    for entry in steps(12):
        first.record(entry)
    again = Journal(tmp_path, ELSEWHERE)
    for entry in steps(10):
        again.record(entry)
    again.record(replace(steps(11)[10], loss=9.0))
    with pytest.raises(ResumeMismatchError, match="samples"):
        again.record(replace(steps(12)[11], samples="ffff"))


def test_a_step_without_an_update_equals_itself(tmp_path: Path) -> None:
    for _ in range(2):
        Journal(tmp_path, HERE).record(replace(ENTRY, grad_norm=math.nan))


def test_a_torn_line_is_no_line(tmp_path: Path) -> None:
    written(tmp_path)
    path = tmp_path / "steps.txt"
    path.write_text(path.read_text().rstrip("\n")[:-9])
    assert sorted(read(path)) == [1, 2, 3, 4]
    Journal(tmp_path, HERE).record(steps(5)[4])
    assert sorted(read(path)) == [1, 2, 3, 4, 5]


def test_after_going_back_other_samples_are_expected(tmp_path: Path) -> None:
    written(tmp_path)
    again = Journal(tmp_path, HERE)
    again.forget_after(3)
    again.record(replace(steps(4)[3], samples="ffff"))
    with pytest.raises(ResumeMismatchError):
        again.record(replace(steps(3)[2], samples="ffff"))
    assert sorted(read(again.path)) == [1, 2, 3, 4]


def test_a_full_disk_costs_lines_not_the_run(tmp_path: Path) -> None:
    import resource

    journal = Journal(tmp_path, HERE)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, before[1]))
    try:
        journal.record(ENTRY)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert journal.lost == 1
