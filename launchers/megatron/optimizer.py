"""Megatron's AdamW over this rank's parameters, and what it keeps of each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from hpcplat.training import Training
from launchers.megatron.config import DTYPES
from launchers.megatron.core import OptimizerConfig, get_megatron_optimizer
from launchers.megatron.model import Chunks

MOMENTS = ("exp_avg", "exp_avg_sq")


class NotFiniteError(ArithmeticError):
    """The gradient norm or the loss is no finite number: nothing was updated."""


@dataclass(frozen=True, slots=True)
class Owned:
    """What the optimizer keeps for a parameter: which elements, and their state.

    ``main`` is what AdamW updates: the parameter itself, its fp32 copy, or the part of
    it that this replica owns; ``start`` is where that part begins in the flat parameter
    (None: every replica has all of it).
    """

    parameter: torch.Tensor
    main: torch.Tensor
    start: int | None
    state: dict[str, Any]

    @property
    def is_copy(self) -> bool:
        """Whether ``main`` is an fp32 copy that must be saved besides the parameter."""
        return self.main.dtype != self.parameter.dtype


def build(training: Training, chunks: Chunks) -> Any:  # noqa: ANN401 - untyped
    """Return Megatron's optimizer for the chunks, its state already there (zeros)."""
    settings, precision = training.settings.optimizer, training.settings.precision
    config = OptimizerConfig(
        optimizer="adam",
        lr=settings.learning_rate,
        min_lr=0.0,
        weight_decay=settings.weight_decay,
        adam_beta1=settings.beta1,
        adam_beta2=settings.beta2,
        adam_eps=settings.epsilon,
        clip_grad=settings.clip_grad,
        use_distributed_optimizer=settings.distributed,
        overlap_param_gather=settings.overlap_param_gather,
        fp16=precision.format == "fp16",
        bf16=precision.format == "bf16",
        params_dtype=DTYPES[precision.format],
        initial_loss_scale=precision.initial_loss_scale,
        min_loss_scale=precision.minimum_loss_scale,
        loss_scale_window=precision.loss_scale_window,
    )
    found = get_megatron_optimizer(config, chunks, use_gloo_process_groups=False)
    _stop_at_bad_norms(found)
    for one in inner(found):
        _fill_state(one.optimizer)
    return found


def inner(optimizer: Any) -> list[Any]:  # noqa: ANN401
    """Return the optimizers that have parameters here: dense, and the experts'."""
    return [one for one in optimizer.chained_optimizers if not one.is_stub_optimizer]


def owned(optimizer: Any) -> Iterator[Owned]:  # noqa: ANN401
    """Yield what each inner optimizer keeps, in a fixed order."""
    for one in inner(optimizer):
        for parameter, main, start in _pairs(one):
            yield Owned(parameter, main, start, one.optimizer.state[main])


Pair = tuple[torch.Tensor, torch.Tensor, int | None]


def _pairs(one: Any) -> Iterator[Pair]:  # noqa: ANN401
    if hasattr(one, "shard_fp32_from_float16_groups"):  # the distributed optimizer
        yield from _split_pairs(one)
    elif hasattr(one, "fp32_from_float16_groups"):
        for group, copies in zip(
            one.float16_groups, one.fp32_from_float16_groups, strict=True
        ):
            yield from ((p, main, None) for p, main in zip(group, copies, strict=True))
        for group in one.fp32_from_fp32_groups:
            yield from ((p, p, None) for p in group)
    else:
        for group in one.optimizer.param_groups:
            yield from ((p, p, None) for p in group["params"])


def _split_pairs(one: Any) -> Iterator[Pair]:  # noqa: ANN401
    kinds = (
        (one.model_float16_groups, one.shard_fp32_from_float16_groups),
        (one.model_fp32_groups, one.shard_fp32_groups),
    )
    for groups, shards in kinds:
        for group, mains in zip(groups, shards, strict=True):
            for parameter, main in zip(group, mains, strict=True):
                begins = one._get_model_param_range_map(parameter)["param"].start
                yield parameter, main, begins


def _fill_state(adam: torch.optim.Optimizer) -> None:
    """Make the state that the first step would make: zeros, so that it can be loaded.

    Each parameter gets a step counter of its own: one shared by all would be counted
    up once for every parameter.
    """
    for group in adam.param_groups:
        for parameter in group["params"]:
            state = adam.state[parameter]
            for name in MOMENTS:
                if name not in state:
                    state[name] = torch.zeros_like(parameter)
            if isinstance(adam, torch.optim.AdamW) and "step" not in state:
                state["step"] = torch.tensor(0.0)


def steps_done(optimizer: Any) -> int:  # noqa: ANN401
    """Return how many updates AdamW has applied; they are the same for all."""
    for one in inner(optimizer):
        for group in one.optimizer.param_groups:
            if "step" in group:  # Transformer Engine's and Apex's FusedAdam
                return int(group["step"])
        for state in one.optimizer.state.values():
            return int(state.get("step", 0))  # FusedAdam counts from its first step on
    return 0


def set_steps_done(optimizer: Any, steps: int) -> None:  # noqa: ANN401
    """Set the number of updates of every parameter."""
    for one in inner(optimizer):
        is_torch = isinstance(one.optimizer, torch.optim.AdamW)
        for group in one.optimizer.param_groups:
            if not is_torch:
                group["step"] = steps
        for state in one.optimizer.state.values():
            if is_torch:
                state["step"].fill_(float(steps))


def set_learning_rate(optimizer: Any, rate: float, decay: float) -> None:  # noqa: ANN401
    """Set the rate and the weight decay of each group, by the group's own factors."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get("lr_mult", 1.0)
        group["weight_decay"] = decay * group.get("wd_mult", 1.0)


def loss_scale(optimizer: Any) -> float:  # noqa: ANN401
    """Return what the loss is multiplied with (1 but for fp16)."""
    return float(optimizer.get_loss_scale().item())


def scaler_state(optimizer: Any) -> dict[str, float]:  # noqa: ANN401
    """Return the state of fp16's loss scaler; empty where there is none."""
    scaler = _scaler(optimizer)
    if scaler is None:
        return {}
    return {name: float(value) for name, value in scaler.state_dict().items()}


def set_scaler_state(optimizer: Any, state: dict[str, float]) -> None:  # noqa: ANN401
    """Put a saved state back into every scaler."""
    for one in inner(optimizer):
        if state and one.grad_scaler is not None:
            scaler = one.grad_scaler
            scaler._scale.fill_(state["scale"])
            scaler._growth_tracker = int(state["growth_tracker"])
            scaler._hysteresis_tracker = int(state["hysteresis_tracker"])


def _scaler(optimizer: Any) -> Any:  # noqa: ANN401
    scalers = (getattr(one, "grad_scaler", None) for one in inner(optimizer))
    return next(filter(None, scalers), None)


def has_scaler(optimizer: Any) -> bool:  # noqa: ANN401
    """Whether a loss scaler looks at the gradients, and learns from them, by itself."""
    return _scaler(optimizer) is not None


def update(optimizer: Any, may_go_on: Callable[[], bool]) -> tuple[bool, float | None]:  # noqa: ANN401
    """Apply the gradients, if it may; returns whether it did, and their norm.

    ``may_go_on`` is asked last, when the norm is known: what it waits for has that long
    to come. It is not asked where there is no norm, or a norm that is no finite number.
    """
    optimizer.may_go_on = may_go_on
    try:
        updated, norm, _ = optimizer.step()
    except NotFiniteError:
        return False, math.nan
    return bool(updated), norm


def _stop_at_bad_norms(optimizer: Any) -> None:  # noqa: ANN401
    """Look at the gradient norm before it scales anything: NaN would be in for good."""
    measure = optimizer.get_grad_norm

    def checked() -> float:
        norm = float(measure())
        if not math.isfinite(norm) or not optimizer.may_go_on():
            raise NotFiniteError(f"The gradient norm is {norm}.")
        return norm

    optimizer.get_grad_norm = checked
