"""Parts of the launcher that need no training: schedule, batches, config, weights."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray

from hpcplat.datasets import Cursor
from hpcplat.errors import ConflictError, InvalidError
from hpcplat.jobs import spec_of
from hpcplat.training import Training, training_of

torch = pytest.importorskip("torch")
pytest.importorskip("megatron.core")

from launchers.megatron import cadence, history, step
from launchers.megatron.batches import (
    Batches,
    Share,
    check_data,
    hash_of,
    joined_hash,
)
from launchers.megatron.config import transformer_config
from launchers.megatron.resume import _check_dataset
from launchers.megatron.schedule import learning_rate
from launchers.megatron.telemetry import PEAKS, measure_of_mfu


def training(**settings: Any) -> Training:  # noqa: ANN401
    layout = settings.pop("layout", {})
    ranks = settings.pop("ranks", 1)
    spec = {
        "name": "x",
        "kind": "train",
        "preset": settings.pop("preset", "gpt-tiny"),
        "parallelism": layout,
        "resources": {"tasks_per_node": ranks},
        "settings": settings,
    }
    return training_of(spec_of(spec))


def rates(kind: str, **schedule: Any) -> list[float]:  # noqa: ANN401
    asked = training(
        steps=10,
        optimizer={"learning_rate": 1.0},
        schedule={"kind": kind, **schedule},
    )
    return [learning_rate(asked.settings, step) for step in range(10)]


def test_warm_up_rises_to_the_peak() -> None:
    found = rates("linear", warmup_steps=4)
    assert found[:4] == [0.25, 0.5, 0.75, 1.0]
    assert found[4] == 1.0
    assert found[9] == pytest.approx(1 / 6)


def test_cosine_is_half_way_down_in_the_middle_and_ends_at_the_minimum() -> None:
    found = rates("cosine", minimum=0.1, decay_steps=8)
    assert found[0] == 1.0
    assert found[4] == pytest.approx(0.55)
    assert found[8:] == [0.1, 0.1]


def test_wsd_stays_and_then_goes_down() -> None:
    found = rates("wsd", decay_steps=4)
    assert found[:7] == [1.0] * 7
    assert found[7:] == [0.75, 0.5, 0.25]


def test_constant_stays() -> None:
    assert set(rates("constant")) == {1.0}


class Windows:
    def __init__(self, count: int = 100, vocabulary: int = 256) -> None:
        self.count, self.vocabulary_size = count, vocabulary

    def __len__(self) -> int:
        return self.count

    def rows(self, indices: ArrayLike) -> NDArray[Any]:
        numbers = np.asarray(indices)
        return (numbers[:, None] * 10 + np.arange(9)).astype(np.uint16)


@given(st.integers(0, 500), st.sampled_from([1, 2, 4, 8]))
def test_shares_make_up_the_batch_and_the_hash_for_any_number_of_replicas(
    position: int, replicas: int
) -> None:
    order = Cursor(100, seed=3)
    ids, sums = [], []
    for index in range(replicas):
        share = Share(index, replicas)
        batches = Batches(Windows(), order, share, 8, 1, torch.device("cpu"))
        own = batches.ids(position)
        ids += own.tolist()
        sums.append(hash_of(own, position, share))
    assert ids == order.indices(position, 8).tolist()
    joined = joined_hash([float(sum(column)) for column in zip(*sums, strict=True)])
    whole = order.indices(position, 8)
    assert joined == joined_hash(hash_of(whole, position, Share(0, 1)))
    swapped = whole.copy()
    swapped[0], swapped[1] = swapped[1], swapped[0]
    other = hash_of(swapped, position, Share(0, 1))
    assert (whole[0] == whole[1]) or joined != joined_hash(other)
    later = hash_of(order.indices(position + 1, 8), position, Share(0, 1))
    assert joined != joined_hash(later)


def test_micro_batches_hold_inputs_and_the_next_tokens() -> None:
    batches = Batches(
        Windows(), Cursor(100, seed=3), Share(0, 1), 4, 2, torch.device("cpu")
    )
    ids = batches.ids(0)
    micro = batches.read(ids)
    assert [tuple(one.tokens.shape) for one in micro] == [(2, 8), (2, 8)]
    assert micro[1].tokens[0].tolist() == [ids[2] * 10 + n for n in range(8)]
    assert micro[1].labels[0].tolist() == [ids[2] * 10 + n + 1 for n in range(8)]
    assert micro[0].positions[1].tolist() == list(range(8))


def test_data_that_the_model_cannot_take_is_refused() -> None:
    with pytest.raises(InvalidError, match="300 token ids, the model's vocabulary 257"):
        check_data(training(), Windows(vocabulary=300))
    with pytest.raises(InvalidError, match="7 samples of 128 tokens are too few"):
        check_data(training(), Windows(count=7))
    check_data(training(), Windows())


class Manifest:
    class origin:
        dataset_digest = "a" * 64


def test_another_version_of_the_dataset_is_refused() -> None:
    manifest: Any = Manifest
    with pytest.raises(ConflictError, match="dataset version aaaaaaaaaaaa, the job"):
        _check_dataset(manifest, "b" * 64)
    _check_dataset(manifest, "a" * 64)


def test_every_field_of_megatrons_config_can_be_reached() -> None:
    model = {"layernorm_epsilon": 1e-6, "activation_func": "relu", "qk_layernorm": True}
    config = transformer_config(training(model=model))
    assert config.layernorm_epsilon == 1e-6
    assert config.activation_func is torch.nn.functional.relu
    assert config.qk_layernorm
    assert config.deterministic_mode, "the default on a CPU"


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ({"layer_norm_epsilon": 1e-6}, "The nearest is layernorm_epsilon"),
        ({"bf16": True}, "decided by settings.precision.format"),
        ({"sequence_parallel": True}, "decided by parallelism.sequence_parallel"),
        ({"activation_func": "gelux"}, "It is one of gelu, silu"),
        ({"pipeline_model_parallel_size": 2}, "decided by parallelism.pipeline"),
        ({"cpu_offloading": True, "cpu_offloading_num_layers": 9}, "Megatron refuses"),
    ],
)
def test_fields_that_cannot_be_are_refused(model: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidError, match=words):
        transformer_config(training(model=model))


def test_what_would_train_wrongly_in_silence_is_refused() -> None:
    interleaved = {"pipeline": 2, "virtual_pipeline": 2}
    good = training(layout=interleaved, ranks=2)
    config = transformer_config(good)
    assert config.overlap_p2p_comm
    assert not config.batch_p2p_comm
    bad = training(layout=interleaved, ranks=2, model={"batch_p2p_comm": True})
    with pytest.raises(InvalidError, match="interleaved schedule trains wrongly"):
        transformer_config(bad)


def test_what_mfu_is_of_is_said() -> None:
    asked = training(
        preset="llama3-8b",
        precision={"format": "bf16"},
        batch={"global_size": 8},
        ranks=8,
    )
    said = measure_of_mfu(asked, PEAKS["H100", "bf16"], 8)
    assert "8 x 989 TFLOP/s (dense bf16" in said
    # 6 x 7.5 billion elements of matrices, and attention over 8,192 tokens.
    assert "57.913 GFLOP a token" in said


def test_saves_are_as_far_apart_as_they_cost_and_as_failures_come() -> None:
    assert cadence.interval(0.5, 1) == cadence.LONGEST
    many = cadence.interval(0.5, 16_384)
    between = 50_000 * 3600 / 16_384
    best = 0.5 + math.sqrt(2 * (between + history.RECOVERY) * 0.5 + 0.5**2)
    assert many == pytest.approx(best)
    assert cadence.interval(0.001, 16_384) == cadence.FIRST
    assert cadence.interval(100.0, 16_384) == 5000.0, "never more than 2 % of the run"
    frail = history.History(failures=99, rank_hours=50_000)
    assert cadence.interval(0.5, 16, frail) < cadence.interval(0.5, 16)
    by_step = cadence.Cadence(every=10, ranks=4)
    assert [step for step in range(1, 31) if by_step.due(step)] == [10, 20, 30]


def test_signals_are_told_as_they_are_after_the_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A copy in memory must be complete by then, not before the step begins."""
    said: list[str] = []
    for name in ("learning_rate", "adam", "hash_of", "Agreement"):
        monkeypatch.setattr(step, name, MagicMock())
    monkeypatch.setattr(step, "_passes", lambda *_, **__: said.append("passes"))
    monkeypatch.setattr(step, "_update", lambda *_: (True, 1.0))

    def signals() -> step.Signals:
        said.append("signals")
        return step.Signals()

    step.train_step(MagicMock(), 0, 0, signals)
    assert said == ["passes", "signals"]


def test_a_warm_process_runs_a_rank_without_a_warning() -> None:
    code = (
        "import runpy, launchers.megatron.preload;"
        "runpy.run_module('launchers.megatron', run_name='a rank')"
    )
    words = ["-W", "error::RuntimeWarning:runpy", "-c", code]
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
