"""The learning rate as a function of the step alone: nothing to save, nothing to lose."""

from __future__ import annotations

from math import cos, pi

from hpcplat.training import Settings


def learning_rate(settings: Settings, step: int) -> float:
    """Return the rate of step ``step`` (from 0): warm-up, then the schedule's way down.

    ``wsd`` stays at the top and goes down linearly over its last ``decay_steps``
    (Hu et al. 2024, arXiv:2404.06395); cosine and linear end at ``decay_steps``.
    """
    schedule, peak = settings.schedule, settings.optimizer.learning_rate
    if step < schedule.warmup_steps:
        return peak * (step + 1) / schedule.warmup_steps
    least = peak * schedule.minimum
    return least + (peak - least) * _height(settings, step)


def _height(settings: Settings, step: int) -> float:
    """Return how far above the minimum the rate still is, from 1 to 0."""
    schedule = settings.schedule
    if schedule.kind == "constant":
        return 1.0
    if schedule.kind == "wsd":
        length = schedule.decay_steps or max(settings.steps // 10, 1)
        return _left(step, settings.steps - length, settings.steps)
    end = schedule.decay_steps or settings.steps
    left = _left(step, schedule.warmup_steps, end)
    return left if schedule.kind == "linear" else (1.0 - cos(pi * left)) / 2.0


def _left(step: int, begin: int, end: int) -> float:
    """Return the part of ``begin`` … ``end`` that is still to come, from 1 to 0."""
    if end <= begin:
        return 0.0
    return min(max((end - step) / (end - begin), 0.0), 1.0)
