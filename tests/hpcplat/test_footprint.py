"""Memory per GPU against the papers' own numbers, and against what must hold."""

from __future__ import annotations

import pytest

from hpcplat.footprint import GIB, Choices, bubble, footprint, layer_activations
from hpcplat.model_shape import named_shapes
from hpcplat.parallel import Allocation, ParallelLayout
from hpcplat.parallel_rules import Batch, Plan

GPT3 = named_shapes()["gpt3-175b"]


def plan(tensor: int = 1, pipeline: int = 1, **sizes: object) -> Plan:
    layout = ParallelLayout.model_validate(
        {"tensor": tensor, "pipeline": pipeline, **sizes}
    )
    machines = Allocation(nodes=8, ranks_per_node=8)
    return Plan(layout, machines, GPT3, Batch(64, 1, 2048))


def test_activations_of_a_layer_are_korthikantis() -> None:
    """Equations 1, 2 and 4: s b h (34 + 5 a s / h), split by t."""
    tokens, hidden, heads, length = 2048, 12288, 96, 2048
    quadratic = 5 * heads * length / hidden
    none = Choices(recompute="none")
    assert layer_activations(plan(), none, tokens) == pytest.approx(
        tokens * hidden * (34 + quadratic)
    )
    assert layer_activations(plan(8), none, tokens) == pytest.approx(
        tokens * hidden * (10 + 24 / 8 + quadratic / 8)
    )
    shared = plan(8, sequence_parallel=True)
    assert layer_activations(shared, none, tokens) == pytest.approx(
        tokens * hidden * (34 + quadratic) / 8
    )
    selective = Choices(recompute="selective")
    assert layer_activations(shared, selective, tokens) == pytest.approx(
        tokens * hidden * 34 / 8
    )
    full = Choices(recompute="full")
    assert layer_activations(plan(8), full, tokens) == tokens * hidden * 2


def test_state_is_zeros_sixteen_bytes_and_two_more_for_fp32_gradients() -> None:
    alone = footprint(plan(), Choices(distributed_optimizer=False))
    assert alone.parameters == GPT3.parameters
    state = alone.weights + alone.gradients + alone.optimizer
    assert state == 18 * GPT3.parameters
    spread = footprint(plan(), Choices())
    assert spread.optimizer == 12 * GPT3.parameters // 64
    full = footprint(plan(), Choices(precision="fp32", distributed_optimizer=False))
    assert full.weights + full.gradients + full.optimizer == 16 * GPT3.parameters


def test_splitting_divides() -> None:
    whole, split = footprint(plan(), Choices()), footprint(plan(8, 8), Choices())
    assert split.parameters == pytest.approx(whole.parameters / 64, rel=0.06)
    assert split.total / GIB < 80


def test_the_pipelines_bubble() -> None:
    assert bubble(plan(8, 8)) == pytest.approx(7 / (64 + 7))
    interleaved = plan(8, 8, virtual_pipeline=2)
    assert bubble(interleaved) == pytest.approx(7 / (128 + 7))
    assert bubble(plan()) == 0
