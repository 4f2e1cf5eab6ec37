"""Memory that a layout needs on each GPU: the arithmetic, with its sources.

Weights, gradients and optimizer state: Rajbhandari et al. 2020 (ZeRO, arXiv:1910.02054)
with Megatron's fp32 gradients. Activations: Korthikanti et al. 2023 (arXiv:2205.05198),
equations 1 to 6, their terms written out for gated MLPs and grouped queries. It is an
estimate: kernels' workspaces, communication buffers and fragmentation come on top.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hpcplat.model_shape import ModelShape
from hpcplat.parallel_rules import Plan

Precision = Literal["fp32", "bf16", "fp16"]
Recompute = Literal["none", "selective", "full"]

GIB = 2**30


@dataclass(frozen=True, slots=True)
class Choices:
    """What else memory depends on: number format, ZeRO 1, recomputation."""

    precision: Precision = "bf16"
    distributed_optimizer: bool = True
    recompute: Recompute = "selective"


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes on the fullest GPU (the first pipeline stage), and parameters there."""

    parameters: int
    weights: int
    gradients: int
    optimizer: int
    activations: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.gradients + self.optimizer + self.activations


def footprint(plan: Plan, choices: Choices) -> Footprint:
    """Return the memory of a plan that has a model and a batch, on its fullest GPU."""
    if plan.model is None or plan.batch is None:
        raise ValueError("memory depends on the model and the batch")
    own, experts = _parameters(plan, plan.model)
    total = own + experts
    half = choices.precision != "fp32"
    state = 12 if half else 8  # moments, and the fp32 copy of half-precision weights
    world, layout = plan.allocation.world, plan.layout
    optimizer = own * state, experts * state
    if choices.distributed_optimizer:
        optimizer = (
            optimizer[0] // (layout.data(world) * layout.context),
            optimizer[1] // layout.expert_data(world),
        )
    return Footprint(
        parameters=total,
        weights=total * (2 if half else 4),
        gradients=total * 4,
        optimizer=sum(optimizer),
        activations=_activations(plan, plan.model, choices),
    )


def _parameters(plan: Plan, model: ModelShape) -> tuple[int, int]:
    """Return (dense, expert) parameters on the fullest stage.

    Norms are not split by tensor parallelism; they are counted as if they were, an error
    of some thousand parameters.
    """
    layout = plan.layout
    layers = model.num_layers // layout.pipeline
    tail = model.output_parameters if layout.pipeline == 1 else 0
    dense = (model.layer_parameters - model.expert_parameters) * layers
    split = layout.tensor
    experts = model.expert_parameters * layers
    if model.num_moe_experts:
        own = (dense + model.embedding_parameters + tail) // split
        return own, experts // (layout.expert * layout.expert_tensor_size)
    return (dense + experts + model.embedding_parameters + tail) // split, 0


def _activations(plan: Plan, model: ModelShape, choices: Choices) -> int:
    batch, layout = plan.batch, plan.layout
    assert batch is not None
    tokens = batch.sequence_length // layout.context * batch.micro_size
    per_layer = layer_activations(plan, choices, tokens)
    # The first stage holds as many micro batches as there are stages, of its own layers
    # (equation 6 of Korthikanti et al.; interleaving holds somewhat more).
    layers = model.num_layers / layout.pipeline
    alive = float(min(layout.pipeline, max(plan.micro_batches, 1)))
    if layout.virtual_pipeline > 1:
        alive *= 1 + (layout.pipeline - 1) / (layout.pipeline * layout.virtual_pipeline)
    logits = tokens * model.padded_vocab_size / layout.tensor * (4 + 2)
    last = logits if layout.pipeline == 1 else 0
    return round(per_layer * layers * alive + last)


def layer_activations(plan: Plan, choices: Choices, tokens: int) -> float:
    """Return the bytes that one layer keeps of one micro batch of ``tokens``.

    In units of tokens x hidden bytes at two bytes an element, masks one: norms 4,
    attention 11 (its input 2, query 2, key 2, value 2, output 2, mask 1), MLP 19 (input
    2, two times 4 hidden at two bytes, mask 1); softmax 5 x heads x length / hidden.
    """
    model, layout = plan.model, plan.layout
    assert model is not None
    assert plan.batch is not None
    t = layout.tensor
    grouped = model.num_query_groups / model.num_attention_heads
    wide = model.ffn_hidden_size / model.hidden_size
    active = model.moe_router_topk if model.num_moe_experts else 1
    whole = 4 + 2 + 1 + 2 + 1  # norms' and blocks' inputs, masks after the blocks
    split = 2 + 4 * grouped + 2 + (6 if model.gated else 4) * wide * active
    length = plan.batch.sequence_length // layout.context
    softmax = 5 * model.num_attention_heads * length / model.hidden_size
    shared = t if layout.sequence_parallel else 1
    if choices.recompute == "full":
        units = 2 / shared
    else:
        units = whole / shared + split / t
        units += softmax / t if choices.recompute == "none" else 0
    scale = 2 if choices.precision == "fp32" else 1
    return units * tokens * model.hidden_size * scale


def bubble(plan: Plan) -> float:
    """Return the part of a step that stages wait: (p - 1) / (m x v) of the work.

    Narayanan et al. 2021 (arXiv:2104.04473), section 2.2.
    """
    layout = plan.layout
    work = plan.micro_batches * layout.virtual_pipeline
    idle = layout.pipeline - 1
    return idle / (work + idle) if work else 1.0
