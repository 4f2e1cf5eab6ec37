"""Every layout trains as one process does: same samples, losses within 1e-5."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("megatron.core")

Changes = dict[str, Any]

LLAMA = {
    "preset": "llama",
    "settings": {"model": {"num_query_groups": 2, "ffn_hidden_size": 96}},
}
EXPERTS = {"settings": {"model": {"num_moe_experts": 4, "moe_router_topk": 2}}}
DISTRIBUTED = {"settings": {"optimizer": {"distributed": True}}}
OVERLAP = {
    "settings": {
        "optimizer": {
            "distributed": True,
            "overlap_grad_reduce": True,
            "overlap_param_gather": True,
        }
    }
}


def layout(**sizes: Any) -> Changes:  # noqa: ANN401
    return {"parallelism": sizes}


TP2_PP2 = layout(tensor=2, pipeline=2)
SHARED = layout(tensor=2, pipeline=2, sequence_parallel=True)
INTERLEAVED = layout(tensor=1, pipeline=2, virtual_pipeline=2)
# name: (ranks, what is trained, how it is laid out)
LAYOUTS: dict[str, tuple[int, Changes, tuple[Changes, ...]]] = {
    "tp2 pp2": (4, {}, (TP2_PP2,)),
    "tp2 dp2": (4, {}, (layout(tensor=2),)),
    "pp2 dp2": (4, {}, (layout(pipeline=2),)),
    "pp2 dp2, the other order": (4, {}, (layout(pipeline=2, order="tp-pp-dp"),)),
    "dp4": (4, {}, ()),
    "pp4": (4, {}, (layout(pipeline=4),)),
    "interleaved": (2, {}, (INTERLEAVED,)),
    "sequence parallel": (4, {}, (SHARED,)),
    "distributed optimizer": (4, {}, (layout(tensor=2), DISTRIBUTED)),
    "overlapped gradients": (
        2,
        {},
        ({"settings": {"optimizer": {"overlap_grad_reduce": True}}},),
    ),
    "overlapped gathers": (4, {}, (layout(pipeline=2), OVERLAP)),
    "llama tp2 pp2": (4, LLAMA, (SHARED,)),
    "llama distributed": (2, LLAMA, (DISTRIBUTED,)),
    "experts": (2, EXPERTS, (layout(expert=2),)),
    "experts and tensor": (
        4,
        EXPERTS,
        (layout(tensor=2, expert=2, expert_tensor=1, sequence_parallel=True),),
    ),
}


def combined(merge: Callable[..., Any], *changes: Changes) -> Changes:
    found: Changes = {}
    for one in changes:
        found = merge(found, one)
    return found


def differences(one: Any, other: Any) -> float:  # noqa: ANN401
    pairs = zip(one.losses, other.losses, strict=True)
    return max(float(abs(first - second)) for first, second in pairs)


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_trains_as_one_process_does(
    train: Any,  # noqa: ANN401
    one_process: Any,  # noqa: ANN401
    merge: Any,  # noqa: ANN401
    tmp_path: Path,
    name: str,
) -> None:
    world, trained, laid_out = LAYOUTS[name]
    found = train(tmp_path, world, combined(merge, trained, *laid_out))
    assert found.ok, found.log()
    reference = one_process(trained)
    assert differences(found, reference) <= 1e-5
    assert [e.samples for e in found.entries.values()] == [
        e.samples for e in reference.entries.values()
    ]
    assert found.steps_saved == [4, 8]


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_is_near_on_another_layout(
    train: Any,  # noqa: ANN401
    one_process: Any,  # noqa: ANN401
    merge: Any,  # noqa: ANN401
    tmp_path: Path,
    precision: str,
) -> None:
    changes = {"settings": {"precision": {"format": precision}}}
    found = train(tmp_path, 4, combined(merge, changes, TP2_PP2))
    assert found.ok, found.log()
    assert differences(found, one_process(changes)) <= 2e-3


@pytest.mark.slow
@pytest.mark.parametrize("granularity", ["selective", "full"])
def test_recomputing_activations_changes_no_bit(
    train: Any,  # noqa: ANN401
    one_process: Any,  # noqa: ANN401
    merge: Any,  # noqa: ANN401
    tmp_path: Path,
    granularity: str,
) -> None:
    dropout = {"settings": {"model": {"hidden_dropout": 0.1}}}
    again = {"settings": {"recompute": {"granularity": granularity}}}
    found = train(tmp_path, 1, combined(merge, dropout, again))
    assert found.ok, found.log()
    assert found.losses == one_process(dropout).losses
