"""Parameter counts against published ones, FLOPs against the papers' formulas."""

from __future__ import annotations

import pytest

from hpcplat.errors import InvalidError
from hpcplat.model_shape import ModelShape, named_shapes


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("gpt2-124m", 124.44e6),
        ("gpt2-1.5b", 1557.6e6),
        ("llama2-7b", 6738.4e6),
        ("llama2-70b", 68976.6e6),
        ("llama3-8b", 8030.3e6),
        ("llama3-70b", 70553.7e6),
        ("llama3-405b", 405853e6),
    ],
)
def test_parameters_are_the_published_ones(name: str, published: float) -> None:
    shape = named_shapes()[name]
    unpadded = shape.model_copy(update={"vocab_multiple": 1})
    assert unpadded.parameters == pytest.approx(published, rel=2e-4)
    assert shape.parameters >= unpadded.parameters


def test_flops_of_gpt_are_narayanans() -> None:
    shape = named_shapes()["gpt3-6.7b"]
    layers, hidden, vocab, length = 32, 4096, shape.padded_vocab_size, 2048
    # Equation 3 is 96 B s l h^2 (1 + s/6h + V/16lh) with one recomputation: 4 passes.
    without_recomputation = (
        72
        * layers
        * hidden**2
        * (1 + length / (6 * hidden) + vocab / (12 * layers * hidden))
    )
    assert shape.flops_per_token(length) == pytest.approx(without_recomputation)


def test_experts_cost_only_those_that_a_token_meets() -> None:
    dense = named_shapes()["llama-tiny"]
    mixed = dense.model_copy(update={"num_moe_experts": 8, "moe_router_topk": 1})
    router = 6 * dense.num_layers * dense.hidden_size * 8
    assert mixed.flops_per_token(128) == dense.flops_per_token(128) + router
    assert mixed.parameters > 3 * dense.num_layers * dense.mlp_matrix_size


def test_sizes_that_follow_are_filled_in() -> None:
    shape = named_shapes()["gpt2-124m"]
    assert (shape.num_query_groups, shape.ffn_hidden_size, shape.kv_channels) == (
        12,
        3072,
        64,
    )
    assert shape.padded_vocab_size == 50304
    assert shape.tied_embeddings


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"num_attention_heads": 3}, "Use 63, or set kv_channels"),
        ({"num_query_groups": 3}, "num_query_groups 3 does not divide the 4"),
        ({"num_moe_experts": 2, "moe_router_topk": 3}, "more than the 2 experts"),
    ],
)
def test_sizes_that_cannot_be_are_refused(sizes: dict[str, int], words: str) -> None:
    good = {
        "num_layers": 2,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "vocab_size": 10,
        "max_sequence_length": 32,
    }
    with pytest.raises(InvalidError, match=words):
        ModelShape.model_validate(good | sizes)
