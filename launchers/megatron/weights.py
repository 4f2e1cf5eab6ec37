"""First weights that depend on the seed and the logical tensor, never on the layout."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from math import sqrt
from typing import Any

import torch

from launchers.megatron.logical import Parameter, Part, bare, parameters

# Matrices that end a residual branch: Megatron scales them by 1/sqrt(2 x layers).
ENDS_OF_BRANCHES = ("linear_proj.weight", "linear_fc2.weight")


def initialize(chunks: Iterable[Any], seed: int) -> None:
    """Draw every matrix anew, each as a slice of the same global one in every layout.

    Biases and norms keep what they were built with (zeros and ones).
    """
    for chunk in chunks:
        config = bare(chunk).config
        for parameter in parameters([chunk]):
            for part in parameter.parts:
                if _is_matrix(part):
                    _draw(parameter, part, _deviation(part.key, config), seed)


def _is_matrix(part: Part) -> bool:
    is_norm = "layernorm" in part.key or "layer_norm" in part.key
    dimensions = len(part.global_shape) - part.prepended
    return part.key.endswith("weight") and dimensions > 1 and not is_norm


def _deviation(key: str, config: Any) -> float:  # noqa: ANN401 - untyped
    if key.endswith(ENDS_OF_BRANCHES):
        return float(config.init_method_std) / sqrt(2.0 * config.num_layers)
    if "word_embeddings" in key and config.embedding_init_method_std is not None:
        return float(config.embedding_init_method_std)
    return float(config.init_method_std)


def _draw(parameter: Parameter, part: Part, deviation: float, seed: int) -> None:
    tensor = parameter.tensor
    inner = part.global_shape[part.prepended :]
    generator = torch.Generator(tensor.device)
    generator.manual_seed(_seed_of(part, seed))
    drawn = torch.randn(inner, generator=generator, device=tensor.device)
    offset, shape = part.offset[part.prepended :], part.shape[part.prepended :]
    box = tuple(slice(at, at + n) for at, n in zip(offset, shape, strict=True))
    with torch.no_grad():
        own = tensor.view(-1)[part.first : part.last]
        own.copy_((drawn[box] * deviation).reshape(-1))


def _seed_of(part: Part, seed: int) -> int:
    """Return a seed for the global matrix that the part belongs to (one per layer)."""
    words = f"{seed}/{part.key}/{part.offset[: part.prepended]}"
    digest = hashlib.sha256(words.encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
