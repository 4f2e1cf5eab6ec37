"""All that a rank imports, and what its first optimizer would: for the warm process."""

from __future__ import annotations

import torch

import launchers.megatron.run

__all__ = ["launchers"]


def _build_an_optimizer() -> None:
    """Let torch import what building AdamW imports (torch._dynamo: 0.5 to 1.5 s)."""
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.AdamW([parameter], lr=1e-3)
    parameter.grad = torch.zeros(1)
    optimizer.step()


_build_an_optimizer()
