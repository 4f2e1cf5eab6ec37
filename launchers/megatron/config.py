"""Megatron's TransformerConfig from a training's settings, wrong forms refused."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F

from hpcplat.errors import InvalidError
from hpcplat.training import Training
from launchers.megatron.core import TransformerConfig

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}

ACTIVATIONS: dict[str, Callable[..., Any]] = {
    "gelu": F.gelu,
    "silu": F.silu,
    "swish": F.silu,
    "relu": F.relu,
    "squared_relu": lambda x: torch.square(F.relu(x)),
}

# Fields that other settings decide: (field, where to say it).
DECIDED = {
    "tensor_model_parallel_size": "parallelism.tensor",
    "pipeline_model_parallel_size": "parallelism.pipeline",
    "virtual_pipeline_model_parallel_size": "parallelism.virtual_pipeline",
    "context_parallel_size": "parallelism.context",
    "expert_model_parallel_size": "parallelism.expert",
    "expert_tensor_parallel_size": "parallelism.expert_tensor",
    "sequence_parallel": "parallelism.sequence_parallel",
    "fp16": "settings.precision.format",
    "bf16": "settings.precision.format",
    "params_dtype": "settings.precision.format",
    "pipeline_dtype": "settings.precision.format",
    "deterministic_mode": "settings.deterministic",
    "recompute_granularity": "settings.recompute.granularity",
}


def transformer_config(training: Training) -> TransformerConfig:
    """Return the config; InvalidError for fields that are unknown or cannot be."""
    overrides = _overrides(training.transformer)
    values = {
        **_sizes(training),
        **_layout(training),
        **_numbers(training),
        **_kernels(),
        **_recompute(training),
        **overrides,
    }
    _refuse_silent_faults(training, values)
    try:
        return TransformerConfig(**values)
    except (ValueError, AssertionError, TypeError) as error:
        raise InvalidError(
            f"Megatron refuses the model: {' '.join(str(error).split())}",
            "Change settings.model.",
        ) from error


def is_deterministic(training: Training) -> bool:
    """Whether the same bits are wanted every time: asked for, or on a CPU."""
    wanted = training.settings.deterministic
    return not torch.cuda.is_available() if wanted is None else wanted


def _sizes(training: Training) -> dict[str, Any]:
    model = training.model
    values: dict[str, Any] = {
        "num_layers": model.num_layers,
        "hidden_size": model.hidden_size,
        "ffn_hidden_size": model.ffn_hidden_size,
        "num_attention_heads": model.num_attention_heads,
        "num_query_groups": model.num_query_groups,
        "kv_channels": model.kv_channels,
        "add_bias_linear": model.has_biases,
        "normalization": "LayerNorm" if model.family == "gpt" else "RMSNorm",
        "gated_linear_unit": model.gated,
        "activation_func": F.silu if model.gated else F.gelu,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
    }
    if model.num_moe_experts:
        values |= {
            "num_moe_experts": model.num_moe_experts,
            "moe_router_topk": model.moe_router_topk,
            "moe_ffn_hidden_size": model.ffn_hidden_size,
            "moe_token_dispatcher_type": "alltoall",
            # Over the one chosen expert a softmax would have no gradient.
            "moe_router_pre_softmax": model.moe_router_topk == 1,
        }
    return values


def _layout(training: Training) -> dict[str, Any]:
    layout = training.layout
    interleaved = layout.virtual_pipeline > 1
    return {
        "tensor_model_parallel_size": layout.tensor,
        "pipeline_model_parallel_size": layout.pipeline,
        "virtual_pipeline_model_parallel_size": (
            layout.virtual_pipeline if interleaved else None
        ),
        "context_parallel_size": layout.context,
        "expert_model_parallel_size": layout.expert,
        "expert_tensor_parallel_size": layout.expert_tensor_size,
        "sequence_parallel": layout.sequence_parallel,
        # The interleaved schedule trains wrongly, without an error, on batched p2p.
        "overlap_p2p_comm": interleaved,
        "batch_p2p_comm": not interleaved,
        "batch_p2p_sync": torch.cuda.is_available(),
    }


def _numbers(training: Training) -> dict[str, Any]:
    precision = training.settings.precision.format
    return {
        "fp16": precision == "fp16",
        "bf16": precision == "bf16",
        "params_dtype": DTYPES[precision],
        "pipeline_dtype": DTYPES[precision],
        "deterministic_mode": is_deterministic(training),
    }


def _kernels() -> dict[str, Any]:
    """Return which fused kernels to use: those that torch brings, and only on GPUs."""
    on_gpu = torch.cuda.is_available()
    return {
        "use_cpu_initialization": False,
        "perform_initialization": True,
        "gradient_accumulation_fusion": False,  # needs Apex's kernel
        "masked_softmax_fusion": False,  # needs Megatron's own built kernels
        "bias_activation_fusion": on_gpu,
        "bias_dropout_fusion": on_gpu,
        "persist_layer_norm": False,
        "cuda_graph_scope": [],  # its default warns of itself
    }


def _recompute(training: Training) -> dict[str, Any]:
    settings = training.settings.recompute
    if settings.granularity == "none":
        return {}
    if settings.granularity == "selective":
        return {"recompute_granularity": "selective"}
    return {
        "recompute_granularity": "full",
        "recompute_method": "uniform",
        "recompute_num_layers": settings.layers,
    }


def _overrides(given: Mapping[str, Any]) -> dict[str, Any]:
    fields = {field.name: field for field in dataclasses.fields(TransformerConfig)}
    found = {}
    for name, value in given.items():
        if name in DECIDED:
            raise InvalidError(
                f"settings.model.{name} is decided by {DECIDED[name]}.",
                "Set it there.",
            )
        if name not in fields:
            near = difflib.get_close_matches(name, fields, 1, 0.5)
            raise InvalidError(
                f"settings.model.{name} is no size of a model and no field of "
                "Megatron's TransformerConfig.",
                f"The nearest is {near[0]}." if near else "Leave it out.",
            )
        found[name] = _value(name, value, str(fields[name].type))
    return found


def _value(name: str, value: object, kind: str) -> object:
    """Return what a text in a job spec stands for, where the field is no text."""
    if not isinstance(value, str):
        return value
    if "dtype" in kind:
        return _named(name, value, DTYPES)
    if name == "activation_func":
        return _named(name, value, ACTIVATIONS)
    return value


def _named(name: str, value: str, known: Mapping[str, Any]) -> object:
    if value not in known:
        raise InvalidError(
            f"settings.model.{name} {value!r} is not known.",
            f"It is one of {', '.join(known)}.",
        )
    return known[value]


def _refuse_silent_faults(training: Training, values: Mapping[str, Any]) -> None:
    """Refuse what Megatron runs without an error, and trains wrongly."""
    interleaved = training.layout.virtual_pipeline > 1
    if interleaved and values["batch_p2p_comm"]:
        raise InvalidError(
            "batch_p2p_comm with the interleaved schedule trains wrongly.",
            "Leave batch_p2p_comm out, or set virtual_pipeline to 1.",
        )
