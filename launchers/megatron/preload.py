"""All that a rank imports, and what its first optimizer would: for the warm process."""

from __future__ import annotations

import numpy.ma  # noqa: F401 - as the datasets below
import torch

# Not __main__, which a rank is to run anew: runpy warns of one that is imported.
import hpcplat.allocation
import launchers.megatron.run
from hpcplat.datasets import (  # loaded at their first use: a rank must not wait for it
    Cursor,
    TokenWindows,
    array,
    codecs,
    resident,
    version,
)

__all__ = [
    "Cursor",
    "TokenWindows",
    "array",
    "codecs",
    "hpcplat",
    "launchers",
    "resident",
    "version",
]


def _build_an_optimizer() -> None:
    """Let torch import what building AdamW imports (torch._dynamo: 0.5 to 1.5 s)."""
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.AdamW([parameter], lr=1e-3)
    parameter.grad = torch.zeros(1)
    optimizer.step()


_build_an_optimizer()
