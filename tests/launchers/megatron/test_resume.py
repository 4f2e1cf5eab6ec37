"""Resuming: bit for bit on the same layout, near on another, and every bug is caught."""

from __future__ import annotations

import math
import os
import re
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpcplat.checkpoints.folder import name_of

pytest.importorskip("megatron.core")
pytestmark = pytest.mark.slow

Changes = dict[str, Any]
Train = Any  # the fixture's Trainer; conftest is no module to import from

TP2 = {"parallelism": {"tensor": 2}}
PP2 = {"parallelism": {"pipeline": 2}}
DROPOUT = {"settings": {"model": {"hidden_dropout": 0.1, "attention_dropout": 0.1}}}
SPLIT = {"settings": {"optimizer": {"distributed": True}}}


def precision(name: str) -> Changes:
    return {"settings": {"precision": {"format": name, "initial_loss_scale": 1024.0}}}


SAME: dict[str, tuple[int, tuple[Changes, ...]]] = {
    "one rank": (1, (DROPOUT,)),
    "tensor": (2, (TP2, DROPOUT)),
    "pipeline": (2, (PP2, DROPOUT)),
    "data, distributed optimizer": (2, (SPLIT, DROPOUT)),
    "bf16, distributed optimizer": (2, (SPLIT, precision("bf16"))),
    "fp16": (2, (TP2, precision("fp16"))),
}


def together(merge: Callable[..., Any], changes: tuple[Changes, ...]) -> Changes:
    found: Changes = {}
    for one in changes:
        found = merge(found, one)
    return found


@pytest.mark.parametrize("name", SAME)
def test_the_same_layout_goes_on_bit_for_bit(
    train: Train, merge: Callable[..., Any], tmp_path: Path, name: str
) -> None:
    world, parts = SAME[name]
    changes = together(merge, parts)
    whole = train(tmp_path, world, changes)
    assert whole.ok, whole.log()
    first = whole.entries
    whole.forget(8)
    again = train(tmp_path, world, changes)
    assert again.ok, again.log()
    assert again.entries == first
    assert again.event("resumed").details["step"] == 4
    assert again.steps_saved == [4, 8]


MOVES: dict[str, tuple[tuple[int, Changes], tuple[int, Changes]]] = {
    "tensor to pipeline": ((2, TP2), (2, PP2)),
    "pipeline to one rank": ((2, PP2), (1, {})),
    "one rank to tensor x pipeline": (
        (1, {}),
        (4, {"parallelism": {"tensor": 2, "pipeline": 2}}),
    ),
    "distributed to plain": ((2, SPLIT), (2, TP2)),
    "plain to distributed": ((2, PP2), (4, {**TP2, **SPLIT})),
    "fewer replicas": ((4, SPLIT), (2, SPLIT)),
}


@pytest.mark.parametrize("name", MOVES)
def test_any_layout_goes_on_from_any_other(
    train: Train, one_process: Callable[..., Any], tmp_path: Path, name: str
) -> None:
    (world, before), (other_world, after) = MOVES[name]
    started = train(tmp_path, world, before)
    assert started.ok, started.log()
    started.forget(8)
    moved = train(tmp_path, other_world, after)
    assert moved.ok, moved.log()
    assert not moved.event("resumed").details["same_layout"]
    pairs = zip(moved.losses, one_process({}).losses, strict=True)
    assert max(abs(one - other) for one, other in pairs) <= 1e-5


def test_gated_layers_and_grouped_queries_move_too(
    train: Train, merge: Callable[..., Any], tmp_path: Path
) -> None:
    model = {"num_query_groups": 2, "ffn_hidden_size": 96}
    llama = {"preset": "llama", "settings": {"model": model}}
    started = train(tmp_path, 2, merge(llama, SPLIT))
    assert started.ok, started.log()
    started.forget(8)
    moved = train(tmp_path, 2, merge(llama, TP2))
    assert moved.ok, moved.log()


SEEDED: dict[str, tuple[Changes, str]] = {
    "wrong rng on one rank": (TP2, r"rng\..* is not as it was saved"),
    "stale tensor on one rank": (SPLIT, "differs between ranks 0 and 1"),
    "lost optimizer state": (TP2, r"optimizer\.exp_avg.* is not as it was saved"),
    "one lost moment on one rank": (SPLIT, r"optimizer\.exp_avg_sq.* is not as it"),
    "lost update count": (PP2, "optimizer_steps is 0 after the load, saved was 4"),
    "lost scaler": (precision("fp16"), "loss_scaler is .* after the load"),
    "swapped shards": (TP2, r"linear_proj\.weight is not as it was saved"),
    "main weights from half": (precision("bf16"), r"optimizer\.main.* is not as it"),
    "shifted data": (SPLIT, "Step 5 was run again and its samples is not the same"),
    "data from the start": (TP2, "Step 5 was run again and its samples is not"),
    "reset learning rate": (PP2, "Step 5 was run again and its learning rate"),
    "dropped gradient": (TP2, "Step 5 was run again and its gradient norm"),
    "dropped micro batch": (SPLIT, "Step 5 was run again and its loss is not"),
    "lost weight decay": (TP2, "Step 6 was run again and its loss is not"),
}


@pytest.mark.parametrize("bug", SEEDED)
def test_a_seeded_bug_of_resuming_is_caught(
    train: Train, merge: Callable[..., Any], tmp_path: Path, bug: str
) -> None:
    changes, words = SEEDED[bug]
    changes = merge(DROPOUT if "rng" in bug else {}, changes)
    whole = train(tmp_path, 2, changes)
    assert whole.ok, whole.log()
    whole.forget(8)
    program = (str(Path(__file__).with_name("seeded_bug.py")), bug)
    again = train(tmp_path, 2, changes, program)
    assert set(again.codes.values()) != {0}
    told = [line for line in again.log(0).splitlines() if "ResumeMismatch" in line]
    assert len(told) == 1
    assert re.search(words, told[0]), told[0]
    assert again.steps_saved == [4], "nothing of a wrong resume is kept"


def test_kill_9_of_a_rank_then_bit_for_bit(
    train: Train, one_process: Callable[..., Any], tmp_path: Path
) -> None:
    changes = {**TP2, "checkpoint": {"every": 2}}
    pids = train.start(tmp_path, 2, changes)
    wait_for(lambda: (tmp_path / "checkpoints" / name_of(4)).exists())
    os.kill(pids[1], signal.SIGKILL)
    died = train.wait(tmp_path, pids)
    assert died.codes[1] == -signal.SIGKILL
    first = died.entries
    again = train(tmp_path, 2, changes)
    assert again.ok, again.log()
    assert {step: again.entries[step] for step in first} == first
    pairs = zip(again.losses, one_process({}).losses, strict=True)
    assert max(abs(one - other) for one, other in pairs) <= 1e-5


def wait_for(condition: Callable[[], bool], patience: float = 90.0) -> None:
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


LONG = {"settings": {"steps": 100_000}, "checkpoint": {"every": 100_000}}


@pytest.mark.parametrize("number", [signal.SIGUSR2, signal.SIGTERM])
def test_asked_to_stop_it_saves_and_says_that_it_is_not_done(
    train: Train, tmp_path: Path, number: signal.Signals
) -> None:
    pids = train.start(tmp_path, 2, {**PP2, **LONG})
    wait_for(lambda: "step 3/" in log_of(tmp_path))
    os.kill(pids[1], number)  # one rank is enough: they agree
    stopped = train.wait(tmp_path, pids)
    assert set(stopped.codes.values()) == {75}
    step = stopped.event("training-stopped").details["step"]
    assert stopped.steps_saved == [step]
    assert max(stopped.entries) == step


def test_asked_to_save_it_saves_and_goes_on(train: Train, tmp_path: Path) -> None:
    pids = train.start(tmp_path, 1, LONG)
    wait_for(lambda: "step 3/" in log_of(tmp_path))
    os.kill(pids[0], signal.SIGUSR1)
    wait_for(lambda: any((tmp_path / "checkpoints").glob("step-*")))
    os.kill(pids[0], signal.SIGTERM)
    assert train.wait(tmp_path, pids).codes == {0: 75}


def log_of(folder: Path) -> str:
    path = folder / "rank-0.log"
    return path.read_text(errors="replace") if path.exists() else ""


def test_a_damaged_checkpoint_is_passed_over(train: Train, tmp_path: Path) -> None:
    whole = train(tmp_path, 2, TP2)
    first = whole.entries
    file = tmp_path / "checkpoints" / name_of(8) / "rank-00001.bin"
    content = bytearray(file.read_bytes())
    content[100] ^= 1
    file.write_bytes(content)
    again = train(tmp_path, 2, TP2)
    assert again.ok, again.log()
    rejected = again.event("checkpoint-rejected").what
    assert "rank-00001.bin was changed" in rejected
    assert again.event("resumed").details["step"] == 4
    assert again.entries == first


def test_another_model_and_another_dataset_are_refused(
    train: Train, tmp_path: Path
) -> None:
    started = train(tmp_path, 1, {"settings": {"steps": 4}})
    assert started.ok, started.log()
    other = train(tmp_path, 1, {"settings": {"model": {"hidden_size": 64}}})
    assert set(other.codes.values()) == {1}
    assert "is of another model" in other.log()
    assert "[300" not in other.log().splitlines()[-1] or "there and" in other.log()
    manifest = tmp_path / "checkpoints" / name_of(4) / "manifest.json"
    assert '"dataset_digest"' in manifest.read_text()


def test_finished_is_finished(train: Train, tmp_path: Path) -> None:
    assert train(tmp_path, 1).ok
    again = train(tmp_path, 1)
    assert again.ok
    assert len([e for e in again.events if e.kind == "training-finished"]) == 2
    assert again.steps_saved == [4, 8]


def test_no_false_alarm_over_many_resumes(train: Train, tmp_path: Path) -> None:
    """Every step is run again from the one before; the bits are always the same."""
    changes = {**TP2, "checkpoint": {"every": 1, "keep_last": 100}}
    whole = train(tmp_path, 2, changes)
    first = whole.entries
    for step in (7, 5, 3, 6, 1, 2):
        for later in [s for s in whole.steps_saved if s > step]:
            shutil.rmtree(tmp_path / "checkpoints" / name_of(later))
        again = train(tmp_path, 2, changes)
        assert again.ok, again.log()
        assert again.entries == first


def test_the_learning_rate_journal_is_finite(one_process: Callable[..., Any]) -> None:
    entries = one_process({}).entries
    assert sorted(entries) == list(range(1, 9))
    assert all(math.isfinite(e.loss) and e.grad_norm > 0 for e in entries.values())
