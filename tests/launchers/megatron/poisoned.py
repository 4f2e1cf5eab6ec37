"""Trains with a loss that is NaN on one batch: ``poisoned.py POSITION [told] SPEC``.

With ``told`` the gradients stay what they are. The batch is known by the position of its first sample, so that a run that comes back to
it finds it poisoned again. A test's tool.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from launchers.megatron import step
from launchers.megatron.__main__ import main

POSITION = int(sys.argv[1])
TOLD_ONLY = sys.argv[2] == "told"
now: dict[str, int] = {}
train_step, mean_loss = step.train_step, step._mean_loss


def noting(live: Any, number: int, position: int, signals: Any) -> Any:  # noqa: ANN401
    now["position"] = position
    return train_step(live, number, position, signals)


def poisoned(output: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    loss, told = mean_loss(output)
    if now["position"] == POSITION:
        return loss * (1.0 if TOLD_ONLY else float("nan")), told * float("nan")
    return loss, told


vars(step)["_mean_loss"] = poisoned
vars(sys.modules["launchers.megatron.loop"])["train_step"] = noting
sys.exit(main(sys.argv[2 + TOLD_ONLY :]))
