"""Norms for Megatron's local layers that know of sequence parallelism."""

from __future__ import annotations

from typing import Any

import torch


class LocalNorm:
    """torch's LayerNorm or RMSNorm, its weights marked for sequence parallelism.

    Megatron's own wrapper refuses sequence parallelism; what it needs is that gradients
    of the norm's weights be summed over tensor ranks, and this mark asks for that.
    """

    def __new__(  # type: ignore[misc]  # a norm, whose class depends on the config
        cls,
        config: Any,  # noqa: ANN401 - TransformerConfig, which is untyped
        hidden_size: int,
        eps: float = 1e-5,
        **_options: object,
    ) -> torch.nn.Module:
        """Return the norm that ``config.normalization`` names."""
        kinds: dict[str, type[torch.nn.Module]] = {
            "LayerNorm": torch.nn.LayerNorm,
            "RMSNorm": torch.nn.RMSNorm,
        }
        norm: torch.nn.Module = kinds[config.normalization](
            hidden_size,
            eps=eps,
            device=torch.device("cuda") if torch.cuda.is_available() else None,
            dtype=config.params_dtype,
        )
        for parameter in norm.parameters():
            parameter.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]
        return norm
