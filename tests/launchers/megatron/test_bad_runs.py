"""What must not be trained, or not go on, is refused with the reason; disks may fill."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpcplat.checkpoints.folder import name_of

pytest.importorskip("megatron.core")
pytestmark = pytest.mark.slow

Train = Any  # the fixture's Trainer
POISONED = str(Path(__file__).with_name("poisoned.py"))
BATCH = 8


def test_a_loss_that_is_no_number_stops_with_step_and_samples(
    train: Train, tmp_path: Path
) -> None:
    found = train(tmp_path, 2, {}, (POISONED, str(5 * BATCH)))
    assert set(found.codes.values()) == {1}
    told = found.log().splitlines()[-1]
    assert "The loss of step 6 is not finite (samples 40 to 47 of the order)" in told
    assert max(found.entries) == 5
    assert found.steps_saved == [4]


@pytest.mark.parametrize("told", [(), ("told",)])  # its gradients are numbers, or not
def test_it_may_leave_the_step_out(
    train: Train,
    one_process: Callable[..., Any],
    tmp_path: Path,
    told: tuple[str, ...],
) -> None:
    skip = {"settings": {"on_nan": "skip"}}
    found = train(tmp_path, 2, skip, (POISONED, str(5 * BATCH), *told))
    assert found.ok, found.log()
    assert "step is left out" in found.event("step-skipped").what
    assert math.isnan(found.entries[6].loss)
    assert found.losses[:5] == pytest.approx(one_process({}).losses[:5], abs=1e-5)
    assert math.isfinite(found.losses[6])
    manifest = (tmp_path / "checkpoints" / name_of(8) / "manifest.json").read_text()
    assert re.search(r'"optimizer_steps": ?7\b', manifest)  # of 8, one left out


def test_a_checkpoint_due_after_a_step_that_is_left_out_is_saved(
    train: Train, tmp_path: Path
) -> None:
    skip = {"settings": {"on_nan": "skip"}}
    found = train(tmp_path, 1, skip, (POISONED, str(3 * BATCH)))
    assert found.ok, found.log()
    assert "step 4 is not finite" in found.event("step-skipped").what
    assert found.steps_saved == [4, 8]


def test_it_may_go_back_and_leave_the_samples_out(
    train: Train, one_process: Callable[..., Any], tmp_path: Path
) -> None:
    back = {"settings": {"on_nan": "rollback"}}
    found = train(tmp_path, 2, back, (POISONED, str(5 * BATCH)))
    assert found.ok, found.log()
    assert "Back to step 4; samples 32 to 47" in found.event("rolled-back").what
    assert all(math.isfinite(loss) for loss in found.losses)
    # Step 5 is done on the batch after the poisoned one.
    plain = one_process({}).entries
    assert found.entries[4].samples == plain[4].samples
    assert found.entries[5].samples == plain[7].samples


def test_a_run_that_went_back_resumes_where_it_was(
    train: Train, tmp_path: Path
) -> None:
    back = {"settings": {"on_nan": "rollback"}}
    whole = train(tmp_path, 2, back, (POISONED, str(5 * BATCH)))
    first = whole.entries
    whole.forget(8)
    again = train(tmp_path, 2, back, (POISONED, str(5 * BATCH)))
    assert again.ok, again.log()
    assert again.entries == first
    resumed = [event for event in again.events if event.kind == "resumed"]
    assert resumed[-1].details["samples"] == 6 * BATCH


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "vocabulary": (
        {"settings": {"model": {"vocab_size": 100}}},
        "257 token ids, the model's vocabulary 100",
    ),
    "too few samples": (
        {"settings": {"batch": {"global_size": 100_000}}},
        "are too few for one batch of 100000",
    ),
    "no such dataset": ({"data": "nothing@abcd"}, "There is no dataset nothing"),
    "no such version": ({"data": "tiny@abcdabcd"}, "tiny has no"),
    "no such split": (
        {"settings": {"data": {"train_split": "trian"}}},
        "has no split trian",
    ),
    "positions": (
        {"settings": {"data": {"sequence_length": 17}}},
        "17 tokens exceed the model's 16 positions",
    ),
    "context": (
        {"parallelism": {"context": 2}},
        "context parallelism needs Transformer Engine",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_bad_input_is_refused_before_the_first_step(
    train: Train, tmp_path: Path, what: str
) -> None:
    changes, words = REFUSED[what]
    world = 2 if what == "context" else 1
    found = train(tmp_path, world, changes)
    assert set(found.codes.values()) == {1}
    assert words in found.log()
    assert "Traceback" not in found.log()
    assert "step 1/" not in found.log()
    assert found.steps_saved == []


def test_more_ranks_than_the_layout_takes_are_refused(
    train: Train, tmp_path: Path
) -> None:
    odd = {"resources": {"tasks_per_node": 2}, "parallelism": {"tensor": 2}}
    found = train(tmp_path, 3, odd)
    assert 1 in found.codes.values()
    assert "does not divide the 3 ranks" in found.log()


def test_a_disk_that_fills_fails_saves_and_not_the_run(
    train: Train, one_process: Callable[..., Any], tmp_path: Path
) -> None:
    program = (str(Path(__file__).with_name("small_disk.py")), "60000")
    found = train(tmp_path, 2, {}, program)
    assert found.ok, found.log()
    assert found.steps_saved == []
    assert "could not write" in found.event("checkpoint-failed").what
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == []
    assert found.losses == pytest.approx(one_process({}).losses, abs=1e-5)


def test_no_space_for_one_checkpoint_is_refused_at_the_start(
    train: Train, tmp_path: Path
) -> None:
    program = (str(Path(__file__).with_name("small_disk.py")), "none")
    found = train(tmp_path, 1, {}, program)
    assert set(found.codes.values()) == {1}
    assert "Make room, or set checkpoint.folder" in found.log()


def test_a_validation_loss_is_logged(train: Train, tmp_path: Path) -> None:
    evaluation = {"settings": {"evaluation": {"every": 4, "batches": 2}}}
    found = train(tmp_path, 2, {**evaluation, "parallelism": {"pipeline": 2}})
    assert found.ok, found.log()
    metrics = "".join(p.read_text() for p in tmp_path.glob("metrics/*/main*.jsonl"))
    assert metrics.count("validation_loss") >= 1
    alone = train(tmp_path / "alone", 1, evaluation)
    assert found.losses == pytest.approx(alone.losses, abs=1e-5)


def test_the_journal_and_checkpoints_say_what_was_trained(
    train: Train, tmp_path: Path
) -> None:
    found = train(tmp_path, 1)
    assert found.ok
    manifest = (tmp_path / "checkpoints" / name_of(8) / "manifest.json").read_text()
    for word in ("dataset_digest", "spec", "layout", "optimizer_steps", "sha256"):
        assert f'"{word}"' in manifest
