"""Which layouts can be: each rule in words, and the nearest layout that keeps them all.

The rules are Megatron-Core's (its asserts and ValueErrors, found here before a job is
queued) and two of ours: tensor parallelism stays inside a node, and the padded
vocabulary does not depend on the layout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import log2

from hpcplat.errors import InvalidError
from hpcplat.model_shape import ModelShape
from hpcplat.parallel import Allocation, LayoutError, ParallelLayout


@dataclass(frozen=True, slots=True)
class Batch:
    """Samples per optimizer step over all ranks, and per forward pass of a replica."""

    global_size: int
    micro_size: int
    sequence_length: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A layout with all that its rules look at; what is None is not checked."""

    layout: ParallelLayout
    allocation: Allocation
    model: ModelShape | None = None
    batch: Batch | None = None
    uneven_pipeline: bool = False  # the user named the layers of each stage himself

    @property
    def micro_batches(self) -> int:
        """Micro batches of one step in each replica (0: the batch does not divide)."""
        if self.batch is None:
            return 0
        once = self.batch.micro_size * self.layout.data(self.allocation.world)
        whole, rest = divmod(self.batch.global_size, once)
        return 0 if rest else whole


def check(plan: Plan) -> None:
    """Raise LayoutError with the first broken rule and the nearest legal layout."""
    broken = broken_rules(plan)
    if not broken:
        return
    near = nearest(plan)
    remedy = (
        "No layout of these ranks keeps all rules: change the model, batch or nodes."
        if near is None
        else f"The nearest layout that can be: {_differences(plan.layout, near)}."
    )
    raise LayoutError(f"{broken[0]}.", remedy)


def broken_rules(plan: Plan) -> list[str]:
    """Return every rule that the plan breaks, in words."""
    world_rules = [broken for rule in _WORLD for broken in rule(plan)]
    if world_rules:  # without a data-parallel size the others have no meaning
        return world_rules
    return [broken for rule in _RULES for broken in rule(plan)]


def nearest(plan: Plan) -> ParallelLayout | None:
    """Return the legal layout of the same ranks that is least far from the plan's.

    Far: the sum of doublings over all dimensions; of equals, the one with less tensor
    parallelism (it costs the most communication).
    """
    legal = (
        layout
        for layout in _candidates(plan)
        if not broken_rules(replace(plan, layout=layout))
    )
    return min(legal, key=lambda found: _distance(plan.layout, found), default=None)


def legal_layouts(plan: Plan) -> Iterator[ParallelLayout]:
    """Yield every legal layout of the plan's ranks, model and batch."""
    for layout in _candidates(plan):
        if not broken_rules(replace(plan, layout=layout)):
            yield layout


def _divides_world(plan: Plan) -> Iterator[str]:
    world, layout = plan.allocation.world, plan.layout
    if world < 1:
        yield (
            f"{plan.allocation.spare_nodes} spare nodes of {plan.allocation.nodes} "
            "leave none to train on"
        )
    elif world % layout.model_ranks:
        yield (
            f"tensor {layout.tensor} x pipeline {layout.pipeline} x context "
            f"{layout.context} = {layout.model_ranks} does not divide the {world} ranks"
        )
    else:
        ranks = layout.expert_tensor_size * layout.expert * layout.pipeline
        if world % ranks:
            yield (
                f"expert tensor {layout.expert_tensor_size} x expert {layout.expert} x "
                f"pipeline {layout.pipeline} = {ranks} does not divide the {world} ranks"
            )


def _tensor_inside_node(plan: Plan) -> Iterator[str]:
    per_node = plan.allocation.ranks_per_node
    for name, size in (
        ("tensor", plan.layout.tensor),
        ("expert_tensor", plan.layout.expert_tensor_size),
    ):
        if per_node % size:
            yield (
                f"{name} {size} does not fit inside a node of {per_node} ranks: "
                f"{size} does not divide {per_node}"
            )
            return


def _heads(plan: Plan) -> Iterator[str]:
    if plan.model is None:
        return
    tensor = plan.layout.tensor
    heads, groups = plan.model.num_attention_heads, plan.model.num_query_groups
    if heads % tensor:
        yield f"tensor {tensor} does not divide the {heads} attention heads"
    elif groups % tensor and tensor % groups:
        yield f"tensor {tensor} and the {groups} query groups do not divide each other"


def _widths(plan: Plan) -> Iterator[str]:
    if plan.model is None:
        return
    tensor, expert_tensor = plan.layout.tensor, plan.layout.expert_tensor_size
    model = plan.model
    mlp = expert_tensor if model.num_moe_experts else tensor
    if model.ffn_hidden_size % mlp:
        yield f"tensor {mlp} does not divide ffn_hidden_size {model.ffn_hidden_size}"
    if model.padded_vocab_size % tensor:
        yield (
            f"tensor {tensor} does not divide the padded vocabulary "
            f"{model.padded_vocab_size}"
        )


def _layers(plan: Plan) -> Iterator[str]:
    if plan.model is None or plan.uneven_pipeline:
        return
    layout, layers = plan.layout, plan.model.num_layers
    chunks = layout.pipeline * layout.virtual_pipeline
    if layers % chunks:
        yield (
            f"pipeline {layout.pipeline} x virtual_pipeline {layout.virtual_pipeline} "
            f"= {chunks} does not divide the {layers} layers"
        )


def _experts(plan: Plan) -> Iterator[str]:
    if plan.model is None:
        return
    layout, experts = plan.layout, plan.model.num_moe_experts
    if experts is None:
        if layout.expert > 1:
            yield f"expert {layout.expert} needs a model with experts"
        return
    if experts % layout.expert:
        yield f"expert {layout.expert} does not divide the {experts} experts"
    if layout.tensor > 1 and not layout.sequence_parallel:
        yield "experts with tensor > 1 train only with sequence_parallel"


def _sequence(plan: Plan) -> Iterator[str]:
    if plan.batch is None:
        return
    layout, length = plan.layout, plan.batch.sequence_length
    if layout.context > 1 and length % (2 * layout.context):
        yield (
            f"context {layout.context} needs a sequence of a multiple of "
            f"{2 * layout.context} tokens, not {length}"
        )
    elif layout.sequence_parallel and length % (layout.tensor * layout.context):
        yield (
            f"sequence_parallel needs a sequence of a multiple of "
            f"{layout.tensor * layout.context} tokens, not {length}"
        )


def _batches(plan: Plan) -> Iterator[str]:
    if plan.batch is None:
        return
    batch, layout = plan.batch, plan.layout
    data = layout.data(plan.allocation.world)
    if not plan.micro_batches:
        yield (
            f"micro batch {batch.micro_size} x data {data} = "
            f"{batch.micro_size * data} does not divide the global batch "
            f"{batch.global_size}"
        )
    elif layout.virtual_pipeline > 1 and plan.micro_batches % layout.pipeline:
        yield (
            f"the interleaved schedule needs a multiple of pipeline {layout.pipeline} "
            f"micro batches, not {plan.micro_batches}"
        )


Rule = Callable[[Plan], Iterator[str]]
_WORLD: tuple[Rule, ...] = (_divides_world,)
_RULES: tuple[Rule, ...] = (
    _tensor_inside_node,
    _heads,
    _widths,
    _layers,
    _experts,
    _sequence,
    _batches,
)


def _candidates(plan: Plan) -> Iterator[ParallelLayout]:
    world, wanted = plan.allocation.world, plan.layout
    sizes = [size for size in range(1, world + 1) if world % size == 0]
    for tensor in sizes:
        for pipeline in sizes:
            for context in sorted({1, wanted.context}):
                if world % (tensor * pipeline * context) == 0:
                    yield from _variants(plan, (tensor, pipeline, context))


def _variants(plan: Plan, sizes: tuple[int, int, int]) -> Iterator[ParallelLayout]:
    """Yield the sizes with every number of chunks, and of experts where wanted."""
    wanted, (tensor, pipeline, context) = plan.layout, sizes
    has_experts = plan.model is not None and plan.model.num_moe_experts is not None
    share = wanted.sequence_parallel or has_experts
    for chunks in sorted({1, 2, wanted.virtual_pipeline}):
        for expert in _expert_sizes(plan, pipeline):
            try:
                yield ParallelLayout(
                    tensor=tensor,
                    pipeline=pipeline,
                    virtual_pipeline=chunks,
                    context=context,
                    expert=expert,
                    expert_tensor=wanted.expert_tensor,
                    sequence_parallel=share and tensor > 1,
                    order=wanted.order,
                )
            except InvalidError:
                continue  # the record itself refuses: no candidate


def _expert_sizes(plan: Plan, pipeline: int) -> list[int]:
    if plan.model is None:
        return sorted({1, plan.layout.expert})
    experts = plan.model.num_moe_experts or 1
    rest = max(plan.allocation.world // pipeline, 1)
    return [size for size in range(1, min(experts, rest) + 1) if experts % size == 0]


def _distance(wanted: ParallelLayout, found: ParallelLayout) -> tuple[float, int]:
    pairs = (
        (wanted.tensor, found.tensor),
        (wanted.pipeline, found.pipeline),
        (wanted.virtual_pipeline, found.virtual_pipeline),
        (wanted.context, found.context),
        (wanted.expert, found.expert),
    )
    doublings = sum(abs(log2(one / other)) for one, other in pairs)
    switched = wanted.sequence_parallel != found.sequence_parallel
    return doublings + 0.5 * switched, found.tensor


def _differences(wanted: ParallelLayout, found: ParallelLayout) -> str:
    old, new = wanted.model_dump(), found.model_dump()
    changed = [f"{name} {new[name]}" for name in new if new[name] != old[name]]
    return ", ".join(changed)
