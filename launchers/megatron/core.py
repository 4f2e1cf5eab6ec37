"""The one door to Megatron-Core: imported quietly and, without CUDA, cheaply.

Importing it pulls in torch's compiler through decorators (1.6 s of 3.6 s) which a CPU
run never uses; ``torch.compile`` stands aside while it is imported there.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from launchers.megatron import cpu

# Megatron imports these for timers that are not used here, where they are installed
# (0.2 s and more): a None in sys.modules lets the import fail, and it goes on without.
NOT_NEEDED = ("torch.utils.tensorboard", "wandb")


def _as_it_is(*args: Any, **_options: Any) -> Any:  # noqa: ANN401 - any decorator use
    if args:
        return args[0]
    return lambda function: function


@contextmanager
def _quick_import() -> Iterator[None]:
    real: Callable[..., Any] = torch.compile
    with warnings.catch_warnings():
        # Fallbacks for missing Apex and Transformer Engine, said in six warnings.
        warnings.simplefilter("ignore")
        if not torch.cuda.is_available():
            torch.compile = _as_it_is
        hidden = [name for name in NOT_NEEDED if name not in sys.modules]
        sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
        try:
            yield
        finally:
            torch.compile = real
            for name in hidden:
                del sys.modules[name]


with _quick_import():
    from megatron.core import parallel_state, tensor_parallel
    from megatron.core.dist_checkpointing.mapping import (
        ShardedObject,
        ShardedTensor,
        ShardedTensorFactory,
        apply_factories,
    )
    from megatron.core.distributed import (
        DistributedDataParallel,
        DistributedDataParallelConfig,
        finalize_model_grads,
    )
    from megatron.core.enums import ModelType
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import (
        get_gpt_decoder_block_spec,
        get_gpt_layer_local_spec,
    )
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.pipeline_parallel import get_forward_backward_func
    from megatron.core.transformer import TransformerConfig
    from megatron.core.transformer.module import Float16Module
    from megatron.core.transformer.moe import moe_utils
    from megatron.core.utils import get_model_config

# Megatron 0.16.1 looks at this name where Transformer Engine would have defined it:
# without the engine, experts end in a NameError.
vars(moe_utils).setdefault("te_general_gemm", None)

if not torch.cuda.is_available():
    cpu.install()

__all__ = [
    "DistributedDataParallel",
    "DistributedDataParallelConfig",
    "Float16Module",
    "GPTModel",
    "ModelType",
    "OptimizerConfig",
    "ShardedObject",
    "ShardedTensor",
    "ShardedTensorFactory",
    "TransformerConfig",
    "apply_factories",
    "finalize_model_grads",
    "get_forward_backward_func",
    "get_gpt_decoder_block_spec",
    "get_gpt_layer_local_spec",
    "get_megatron_optimizer",
    "get_model_config",
    "parallel_state",
    "tensor_parallel",
]
