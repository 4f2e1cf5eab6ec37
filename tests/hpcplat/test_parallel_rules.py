"""Illegal layouts are refused in words, each rule counts, the nearest one is legal."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcplat import parallel_rules
from hpcplat.model_shape import ModelShape, named_shapes
from hpcplat.parallel import Allocation, LayoutError, ParallelLayout
from hpcplat.parallel_rules import Batch, Plan, broken_rules, check, nearest

MODEL = ModelShape.model_validate(
    {
        "num_layers": 8,
        "hidden_size": 64,
        "num_attention_heads": 8,
        "vocab_size": 1000,
        "max_sequence_length": 64,
    }
)
EXPERTS = MODEL.model_copy(update={"num_moe_experts": 4})
GOOD = Plan(
    ParallelLayout(tensor=2, pipeline=2),
    Allocation(nodes=2, ranks_per_node=4),
    MODEL,
    Batch(global_size=16, micro_size=2, sequence_length=64),
)


def bent(plan: Plan = GOOD, **sizes: object) -> Plan:
    layout = ParallelLayout.model_validate(plan.layout.model_dump() | sizes)
    return replace(plan, layout=layout)


BROKEN: dict[str, tuple[Plan, str]] = {
    "world": (bent(tensor=3), "= 6 does not divide the 8 ranks"),
    "spares": (
        replace(GOOD, allocation=Allocation(nodes=1, spare_nodes=1)),
        "1 spare nodes of 1",
    ),
    "node": (bent(tensor=8, pipeline=1), "tensor 8 does not fit inside a node of 4"),
    "heads": (
        replace(GOOD, model=MODEL.model_copy(update={"num_attention_heads": 3})),
        "tensor 2 does not divide the 3 attention heads",
    ),
    "groups": (
        replace(
            bent(tensor=4),
            model=MODEL.model_copy(
                update={"num_query_groups": 6, "num_attention_heads": 12}
            ),
        ),
        "tensor 4 and the 6 query groups",
    ),
    "ffn": (
        replace(GOOD, model=MODEL.model_copy(update={"ffn_hidden_size": 129})),
        "does not divide ffn_hidden_size 129",
    ),
    "vocabulary": (
        replace(
            GOOD,
            model=MODEL.model_copy(update={"vocab_size": 999, "vocab_multiple": 1}),
        ),
        "does not divide the padded vocabulary 999",
    ),
    "layers": (
        bent(virtual_pipeline=8),
        "pipeline 2 x virtual_pipeline 8 = 16 does not divide the 8 layers",
    ),
    "no experts": (bent(expert=2), "expert 2 needs a model with experts"),
    "experts": (
        replace(
            bent(expert=2, sequence_parallel=True, expert_tensor=1),
            model=MODEL.model_copy(update={"num_moe_experts": 3}),
        ),
        "expert 2 does not divide the 3 experts",
    ),
    "expert sequence": (
        replace(GOOD, model=EXPERTS),
        "experts with tensor > 1 train only with sequence_parallel",
    ),
    "expert world": (
        bent(expert=8, expert_tensor=1),
        "expert tensor 1 x expert 8 x pipeline 2 = 16",
    ),
    "context": (
        replace(bent(context=2), batch=Batch(16, 2, 66)),
        "context 2 needs a sequence of a multiple of 4 tokens, not 66",
    ),
    "sequence": (
        replace(bent(sequence_parallel=True), batch=Batch(16, 2, 65)),
        "sequence_parallel needs a sequence of a multiple of 2 tokens",
    ),
    "batch": (
        replace(GOOD, batch=Batch(18, 2, 64)),
        "micro batch 2 x data 2 = 4 does not divide the global batch 18",
    ),
    "interleaved": (
        replace(bent(virtual_pipeline=2), batch=Batch(12, 2, 64)),
        "needs a multiple of pipeline 2 micro batches, not 3",
    ),
}


def test_the_good_plan_is_good() -> None:
    assert broken_rules(GOOD) == []
    check(GOOD)
    assert GOOD.micro_batches == 4


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_is_told_in_words_with_what_would_do(name: str) -> None:
    plan, words = BROKEN[name]
    with pytest.raises(LayoutError) as refused:
        check(plan)
    assert words in refused.value.what
    found = nearest(plan)
    if found is None:
        assert "No layout of these ranks" in refused.value.remedy
    else:
        assert broken_rules(replace(plan, layout=found)) == []
        assert "The nearest layout that can be: " in refused.value.remedy


@pytest.mark.parametrize("rule", [*parallel_rules._RULES, *parallel_rules._WORLD])
def test_every_rule_is_needed(
    rule: parallel_rules.Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutation: without the rule, some plan that must be refused gets through."""

    def refused() -> set[str]:
        found = set()
        for name, (plan, words) in BROKEN.items():
            try:
                told = broken_rules(plan)
            except (LayoutError, ZeroDivisionError):
                continue  # a later rule stumbles over what this one should have caught
            if any(words in broken for broken in told):
                found.add(name)
        return found

    assert refused() == set(BROKEN)
    for table in ("_RULES", "_WORLD"):
        rest = tuple(one for one in getattr(parallel_rules, table) if one is not rule)
        monkeypatch.setattr(parallel_rules, table, rest)
    assert refused() < set(BROKEN)


def test_the_nearest_layout_by_hand() -> None:
    assert nearest(bent(tensor=8, pipeline=1)) == ParallelLayout(tensor=4)
    assert nearest(bent(tensor=3)) == ParallelLayout(tensor=4, pipeline=2)
    with pytest.raises(LayoutError, match="nearest layout that can be: sequence_par"):
        check(replace(GOOD, model=EXPERTS))


SIZES = st.sampled_from([1, 2, 3, 4, 6, 8])


@settings(max_examples=150)
@given(st.tuples(SIZES, SIZES, SIZES), SIZES, st.integers(1, 40), st.booleans())
def test_a_nearest_layout_keeps_every_rule(
    sizes: tuple[int, int, int], nodes: int, batch: int, experts: bool
) -> None:
    tensor, pipeline, chunks = sizes
    plan = Plan(
        ParallelLayout(
            tensor=tensor,
            pipeline=pipeline,
            virtual_pipeline=chunks if pipeline > 1 else 1,
            sequence_parallel=experts and tensor > 1,
        ),
        Allocation(nodes=nodes, ranks_per_node=4),
        EXPERTS if experts else MODEL,
        Batch(batch, 1, 64),
    )
    found = nearest(plan)
    if found is not None:
        assert broken_rules(replace(plan, layout=found)) == []
    if broken_rules(plan) == []:
        assert found == plan.layout


@settings(max_examples=60)
@given(st.sampled_from([1, 2, 3, 4, 5, 8]), SIZES, st.sampled_from([2, 3, 4, 6, 8]))
def test_megatrons_own_checks_agree(tensor: int, pipeline: int, groups: int) -> None:
    """What TransformerConfig refuses of heads, groups and layers, we refuse, and v.v."""
    config = pytest.importorskip("megatron.core.transformer.transformer_config")
    torch = pytest.importorskip("torch")
    heads = 24
    model = MODEL.model_copy(
        update={"num_attention_heads": heads, "num_query_groups": groups}
    )
    allocation = Allocation(ranks_per_node=tensor * pipeline)
    plan = Plan(ParallelLayout(tensor=tensor, pipeline=pipeline), allocation, model)
    ours = [rule for rule in broken_rules(plan) if "heads" in rule or "groups" in rule]
    try:
        config.TransformerConfig(
            num_layers=8,
            hidden_size=48,
            num_attention_heads=heads,
            num_query_groups=groups,
            tensor_model_parallel_size=tensor,
            pipeline_model_parallel_size=pipeline,
            pipeline_dtype=torch.float32,
            cuda_graph_scope=[],
        )
    except ValueError:
        assert ours
    else:
        assert not ours


@pytest.mark.parametrize("name", named_shapes())
def test_every_named_model_has_a_layout_on_eight_gpus(name: str) -> None:
    plan = Plan(ParallelLayout(), Allocation(ranks_per_node=8), named_shapes()[name])
    assert broken_rules(plan) == []
