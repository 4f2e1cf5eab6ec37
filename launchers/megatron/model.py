"""Builds this rank's part of the GPT model, the same whatever the layout."""

from __future__ import annotations

import importlib.util
from typing import Any

import torch

from hpcplat.errors import InvalidError
from hpcplat.training import Training
from launchers.megatron.config import transformer_config
from launchers.megatron.core import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    Float16Module,
    GPTModel,
    TransformerConfig,
    get_gpt_decoder_block_spec,
    parallel_state,
)
from launchers.megatron.norm import LocalNorm
from launchers.megatron.weights import initialize

Chunks = list[Any]  # DistributedDataParallel, which is untyped


def build(training: Training) -> Chunks:
    """Return this rank's model chunks, wrapped for precision and data parallelism.

    More than one for the interleaved schedule. Raises InvalidError for a model or
    layout that Megatron, or what is installed here, cannot train.
    """
    config = transformer_config(training)
    engine = has_transformer_engine()
    if training.layout.context > 1 and not engine:
        raise InvalidError(
            "context parallelism needs Transformer Engine, which is not installed.",
            "Set parallelism.context to 1.",
        )
    stages = range(training.layout.virtual_pipeline)
    bare = [_gpt(training, config, stage, engine) for stage in stages]
    initialize(bare, training.settings.seed)
    if config.bf16 or config.fp16:
        bare = [Float16Module(config, chunk) for chunk in bare]
    wrapped = [
        DistributedDataParallel(
            config,
            _ddp_config(training),
            chunk,
            # Buckets of later chunks would only cut the one transfer that they share.
            disable_bucketing=stage > 0,
        )
        for stage, chunk in enumerate(bare)
    ]
    _overlap(training, config, wrapped)
    return wrapped


def has_transformer_engine() -> bool:
    """Whether layers of Transformer Engine are to be used: installed, on a GPU."""
    found = importlib.util.find_spec("transformer_engine") is not None
    return found and torch.cuda.is_available()


def _gpt(
    training: Training, config: TransformerConfig, stage: int, engine: bool
) -> torch.nn.Module:
    model = training.model
    vp_stage = stage if training.layout.virtual_pipeline > 1 else None
    spec = get_gpt_decoder_block_spec(
        config,
        use_transformer_engine=engine,
        normalization=config.normalization,
        vp_stage=vp_stage,
    )
    if not engine:
        _use_local_norms(spec)
    found: torch.nn.Module = GPTModel(
        config=config,
        transformer_layer_spec=spec,
        vocab_size=model.padded_vocab_size,
        max_sequence_length=max(model.max_sequence_length, training.sequence_length),
        pre_process=parallel_state.is_pipeline_first_stage(
            ignore_virtual=False, vp_stage=vp_stage
        ),
        post_process=parallel_state.is_pipeline_last_stage(
            ignore_virtual=False, vp_stage=vp_stage
        ),
        share_embeddings_and_output_weights=model.tied_embeddings,
        position_embedding_type=(
            "learned_absolute" if model.family == "gpt" else "rope"
        ),
        parallel_output=True,
        vp_stage=vp_stage,
    )
    if torch.cuda.is_available():
        found.cuda(torch.cuda.current_device())
    return found


def _use_local_norms(spec: Any) -> None:  # noqa: ANN401 - untyped
    spec.layer_norm = LocalNorm
    for layer in spec.layer_specs:
        layer.submodules.input_layernorm = LocalNorm
        layer.submodules.pre_mlp_layernorm = LocalNorm


def _ddp_config(training: Training) -> DistributedDataParallelConfig:
    optimizer = training.settings.optimizer
    return DistributedDataParallelConfig(
        grad_reduce_in_fp32=training.settings.precision.format != "fp32",
        overlap_grad_reduce=optimizer.overlap_grad_reduce,
        overlap_param_gather=optimizer.overlap_param_gather,
        use_distributed_optimizer=optimizer.distributed,
    )


def _overlap(training: Training, config: TransformerConfig, chunks: Chunks) -> None:
    """Hand the schedules the hooks that overlap communication with work."""
    optimizer, single = training.settings.optimizer, len(chunks) == 1
    if optimizer.overlap_grad_reduce:
        config.no_sync_func = _one_or_all([c.no_sync for c in chunks], single)
        # Called by the schedules only where a stage may reduce ahead of the others.
        if training.layout.pipeline > 1 and not single:
            config.grad_sync_func = [c.start_grad_sync for c in chunks]
    if optimizer.overlap_param_gather and not single:
        config.param_sync_func = [c.start_param_sync for c in chunks]


def _one_or_all(functions: list[Any], single: bool) -> Any:  # noqa: ANN401
    return functions[0] if single else functions
