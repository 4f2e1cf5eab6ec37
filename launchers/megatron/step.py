"""One training step, and one evaluation, over the whole world."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from hpcplat.checkpoints.shard import Shard
from hpcplat.parallel import RankPlace
from hpcplat.training import Training
from launchers.megatron import optimizer as adam
from launchers.megatron.batches import Batches, MicroBatch, hash_of, joined_hash
from launchers.megatron.core import (
    finalize_model_grads,
    get_forward_backward_func,
    get_model_config,
)
from launchers.megatron.model import Chunks
from launchers.megatron.schedule import learning_rate


class Signals(NamedTuple):
    """What a rank tells all others with each step: stop, a save failed, save now.

    ``copying``: its last copy in memory is not complete yet.
    """

    stop: bool = False
    save_failed: bool = False
    save: bool = False
    copying: bool = False


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step gave. ``updated`` is False where the update was left out.

    ``loss`` is the mean over the global batch; ``grad_norm`` is before clipping, None
    without an update; ``signals`` are true if any rank's are. ``data_seconds`` is how
    long this rank waited for its samples.
    """

    loss: float
    grad_norm: float | None
    learning_rate: float
    loss_scale: float
    samples: str
    updated: bool
    signals: Signals
    data_seconds: float = 0.0


@dataclass(slots=True)
class Live:
    """What lives on this rank while it trains."""

    training: Training
    place: RankPlace
    chunks: Chunks
    optimizer: Any
    batches: Batches
    device: torch.device
    validation: Batches | None = None
    shards: list[Shard] = field(default_factory=list)  # state.state_shards fills it
    world: int = field(default_factory=dist.get_world_size)

    @property
    def micro_batches(self) -> int:
        """Forward passes of one step in this replica."""
        batches = self.batches
        return batches.batch // (batches.micro * batches.share.count)

    @property
    def is_last_stage(self) -> bool:
        """Whether this rank knows the loss."""
        return self.place.pipeline == self.training.layout.pipeline - 1

    @property
    def speaks(self) -> bool:
        """Whether it speaks for its replica: one of the tensor and context ranks."""
        return self.place.tensor == 0 and self.place.context == 0


def connect(live: Live) -> None:
    """Give the schedules what they call: loss scaling, and the end of the gradients."""
    config = get_model_config(live.chunks[0])
    config.grad_scale_func = live.optimizer.scale_loss
    config.finalize_model_grads_func = finalize_model_grads
    for chunk in live.chunks:
        chunk.train()


def train_step(
    live: Live,
    step: int,
    position: int,
    signals: Callable[[], Signals] = Signals,
) -> StepResult:
    """Do step ``step`` (from 0) on the batch that begins at sample ``position``.

    ``signals`` is asked late in the step: a copy in memory has most of a step's time.
    Nothing is updated when the loss or the gradient norm is no finite number.
    """
    settings = live.training.settings
    rate = learning_rate(settings, step)
    scale = adam.loss_scale(live.optimizer)
    for chunk in live.chunks:
        chunk.zero_grad_buffer()
    live.optimizer.zero_grad()
    begun = monotonic()
    ids = live.batches.ids(position)
    micro = live.batches.read(ids)
    waited = monotonic() - begun
    losses = _passes(live, micro, forward_only=False)
    hashes = hash_of(ids, position, live.batches.share)
    agreement = Agreement(live, losses, hashes, signals())
    adam.set_learning_rate(live.optimizer, rate, settings.optimizer.weight_decay)
    updated, norm = _update(live, agreement)
    facts = agreement.facts()
    return StepResult(
        facts.loss, norm, rate, scale, facts.samples, updated, facts.signals, waited
    )


def evaluate(live: Live, count: int) -> float:
    """Return the mean loss over the first ``count`` global validation batches."""
    if live.validation is None:
        return math.nan
    for chunk in live.chunks:
        chunk.eval()
    total = 0.0
    with torch.no_grad():
        for number in range(count):
            position = number * live.validation.batch
            micro = live.validation.read(live.validation.ids(position))
            losses = _passes(live, micro, forward_only=True)
            total += Agreement(live, losses, (0, 0), Signals()).facts().loss
    for chunk in live.chunks:
        chunk.train()
    return total / count


def _passes(
    live: Live, micro: Sequence[MicroBatch], *, forward_only: bool
) -> list[torch.Tensor]:
    """Run the official schedule; the losses of the micro batches on the last stage."""
    single = len(live.chunks) == 1
    run = get_forward_backward_func()
    found: list[torch.Tensor] = run(
        forward_step_func=_forward,
        data_iterator=iter(micro) if single else [iter(micro) for _ in live.chunks],
        model=live.chunks[0] if single else live.chunks,
        num_microbatches=len(micro),
        seq_length=live.training.sequence_length,
        micro_batch_size=live.batches.micro,
        forward_only=forward_only,
    )
    return found


LossFunction = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


def _forward(
    batches: Iterator[MicroBatch],
    model: Any,  # noqa: ANN401 - untyped
) -> tuple[torch.Tensor, LossFunction]:
    batch = next(batches)
    output = model(batch.tokens, batch.positions, None, labels=batch.labels)
    return output, _mean_loss


def _mean_loss(output: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    loss = output.float().mean()
    # The schedule divides the first in place by the number of micro batches.
    return loss, loss.detach().clone()


class _Facts(NamedTuple):
    loss: float
    samples: str
    signals: Signals


class Agreement:
    """All ranks get to know the loss, the samples' hash and the signals: one collective.

    It is under way from the start, so that the ranks can do something else until they
    need to know: to wait for each other once more in each step was 5 % of short steps.
    """

    def __init__(
        self,
        live: Live,
        losses: Sequence[torch.Tensor],
        hashes: tuple[int, int],
        signals: Signals,
    ) -> None:
        self._passes = live.micro_batches * live.batches.share.count
        self._values = _told(live, losses, hashes, signals)
        self._work = dist.all_reduce(self._values, async_op=True)
        self._facts: _Facts | None = None

    def facts(self) -> _Facts:
        """Return what all know, when all have told."""
        if self._facts is None:
            self._work.wait()
            found = self._values.tolist()
            self._facts = _Facts(
                found[0] / self._passes,
                joined_hash(found[1:3]),
                Signals(*(total > 0 for total in found[3:])),
            )
        return self._facts

    def is_finite(self) -> bool:
        """Whether the loss is a number that a step may be made with."""
        return math.isfinite(self.facts().loss)


def _told(
    live: Live,
    losses: Sequence[torch.Tensor],
    hashes: tuple[int, int],
    signals: Signals,
) -> torch.Tensor:
    """Return what this rank adds to the sums, shape [3 + signals]."""
    values = torch.zeros(3 + len(signals), dtype=torch.float64, device=live.device)
    if live.speaks and live.is_last_stage and losses:
        values[0] = torch.stack(list(losses)).double().sum()
    if live.speaks and live.place.pipeline == 0:
        values[1], values[2] = float(hashes[0]), float(hashes[1])
    for place, told in enumerate(signals, 3):
        values[place] = float(told)
    return values


def _update(live: Live, agreement: Agreement) -> tuple[bool, float | None]:
    """Update, unless the loss forbids it; the norm is then None."""
    # A scaler must not learn from the gradients of a loss that is none.
    if adam.has_scaler(live.optimizer) and not agreement.is_finite():
        return False, None
    updated, norm = adam.update(live.optimizer, agreement.is_finite)
    return (updated, norm) if agreement.is_finite() else (False, None)
