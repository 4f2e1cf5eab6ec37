"""A job spec's training settings: filled in, checked against each other, refused."""

from __future__ import annotations

from typing import Any

import pytest

from hpcplat.errors import InvalidError
from hpcplat.jobs import SpecError, spec_of
from hpcplat.training import Training, training_of

TINY = {
    "name": "tiny",
    "kind": "train",
    "preset": "gpt-tiny",
    "data": "text@v1",
    "resources": {"nodes": 2, "tasks_per_node": 2},
    "parallelism": {"tensor": 2, "pipeline": 2},
    "settings": {"batch": {"global_size": 8}, "data": {"sequence_length": 32}},
}


def training(**changes: Any) -> Training:  # noqa: ANN401
    return training_of(spec_of({**TINY, **changes}))


def test_a_preset_with_settings_becomes_a_training() -> None:
    found = training()
    assert found.model.num_layers == 4
    assert found.batch.sequence_length == 32
    assert found.plan().micro_batches == 8
    assert found.dataset == "text@v1"


def test_a_family_takes_sizes_and_any_other_field_is_megatrons() -> None:
    model = {
        "num_layers": 2,
        "hidden_size": 32,
        "num_attention_heads": 2,
        "vocab_size": 100,
        "max_sequence_length": 64,
        "attention_dropout": 0.1,
    }
    found = training(preset="llama", settings={"model": model})
    assert found.model.gated
    assert found.transformer == {"attention_dropout": 0.1}
    assert found.sequence_length == 64


def test_changing_the_width_lets_what_follows_from_it_follow() -> None:
    found = training(settings={"model": {"hidden_size": 32}})
    assert found.model.ffn_hidden_size == 128
    assert found.model.kv_channels == 8


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"preset": "gpt2-125m"}, "preset", "The nearest is gpt2-124m"),
        (
            {"settings": {"stepss": 3}},
            "settings.stepss",
            "The nearest is steps",
        ),
        (
            {"settings": {"optimizer": {"learning_rate": 0}}},
            "settings.optimizer.learning_rate",
            "",
        ),
        (
            {"settings": {"optimizer": {"overlap_param_gather": True}}},
            "settings.optimizer.overlap_param_gather",
            "needs the distributed optimizer",
        ),
        (
            {"settings": {"data": {"sequence_length": 4096}}},
            "settings.data.sequence_length",
            "4096 tokens exceed the model's 128 positions",
        ),
        (
            {"settings": {"model": {"num_layers": 3}}},
            "parallelism",
            "does not divide the 3 layers",
        ),
        (
            {"settings": {"model": {"hidden_size": 66}}},
            "settings.model",
            "not a multiple of the 4 heads",
        ),
        (
            {"settings": {"batch": {"global_size": 7, "micro_size": 2}}},
            "parallelism",
            "does not divide the global batch 7",
        ),
        (
            {"settings": {"steps": 5, "schedule": {"warmup_steps": 6}}},
            "settings.schedule.warmup_steps",
            "Give at most 5",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_its_field(
    changes: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(SpecError) as refused:
        training(**changes)
    assert [one.field for one in refused.value.complaints] == [field]
    assert words in str(refused.value)


def test_a_command_trains_no_preset() -> None:
    with pytest.raises(InvalidError, match="trains no preset"):
        training_of(spec_of({"name": "x", "command": ["true"]}))
