"""Saves and resumes a PyTorch training for a script: asynchronous, whole, proven."""

from __future__ import annotations

import math
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist

from hpcplat.allocation import RankPlacement
from hpcplat.checkpoints.checkpointer import Checkpointer
from hpcplat.checkpoints.folder import Checkpoint, Rejected, Retention
from hpcplat.checkpoints.manifest import Origin
from hpcplat.checkpoints.reading import Contents
from hpcplat.checkpoints.together import (
    find_newest,
    from_first,
    prove_state,
    rank_and_world,
    together,
)
from hpcplat.checkpoints.torch_state import RNG, Stateful, TorchState, rng_shards
from hpcplat.checkpoints.writing import Facts
from hpcplat.jobs import JobSpec
from hpcplat.journal import Conditions, Entry, Journal
from hpcplat.pulse import Phase, Pulse
from hpcplat.quantities import counted
from hpcplat.signals import Asked, RankExit

AUTOMATIC = 1000  # steps between saves where nothing was said


class Host(Protocol):
    """What a saver needs of the run that it saves (hpcplat.run.Run)."""

    place: RankPlacement
    asked: Asked

    @property
    def spec(self) -> JobSpec | None:
        """What was asked for."""
        ...

    def event(self, kind: str, what: str, **details: Any) -> None:  # noqa: ANN401
        """Say something, and keep it."""
        ...


@dataclass
class Saver:
    """Saves every so many steps and when asked to; tells the script when to end.

    ``samples`` is how many were consumed at the last ``after`` or ``resume``.
    """

    run: Host
    state: TorchState
    checkpointer: Checkpointer
    every: int
    journal: Journal | None = None
    step: int = 0
    samples: int = 0
    saved_step: int = -1
    pulse: Pulse = field(init=False)
    metrics: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begin to beat: the agent sees which step was done last."""
        self.pulse = Pulse(self.run.place.pulse, self.run.place.local_rank)

    @classmethod
    def of(
        cls,
        run: Host,
        model: torch.nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        others: Mapping[str, Stateful],
        every: int | None,
    ) -> Saver:
        """Return the saver of a run, for what it trains."""
        rank, world = rank_and_world()
        wanted = run.spec.checkpoint if run.spec else None
        folder = (
            wanted.folder
            if wanted and wanted.folder
            else run.place.run_folder.checkpoints
        )
        keep = (
            Retention(wanted.keep_last, wanted.keep_every, wanted.best)
            if wanted
            else Retention()
        )
        word = from_first(secrets.token_hex(4))
        asked = wanted.every if wanted and isinstance(wanted.every, int) else AUTOMATIC
        return cls(
            run,
            TorchState(model, optimizers, others),
            Checkpointer(Path(folder), word, rank, world, keep),
            every or asked,
        )

    def resume(self) -> int:
        """Load the newest whole checkpoint, prove it, and return the steps it had done.

        0 when there is none. Raises ResumeMismatchError on all ranks if what is live
        afterwards is not what was saved.
        """
        found = find_newest(self.checkpointer.folder, self._tell_rejected)
        if found is None:
            return 0
        same = found.manifest.origin.world_size == self.checkpointer.world
        together(lambda: self.state.load(Contents(found), same_world=same))
        self._prove(found, same)
        self.step = self.saved_step = found.step
        self.samples = found.manifest.samples
        self.run.event(
            "resumed",
            f"Resumed after step {self.step}: every digest is that of the save.",
            step=self.step,
            samples=self.samples,
        )
        return self.step

    def after(
        self, step: int, samples: int, loss: float | None = None, stop: bool = False
    ) -> bool:
        """Take note of a step that is done (from 1); False when it was the last.

        Saves when it is time, or when any rank was asked to. With ``loss`` (the same on
        all ranks) the step goes into the journal: run again after a resume it must
        give the same bits. ``stop`` asks for the end from the script's side.
        """
        self.step, self.samples = step, samples
        self.pulse.beat(step)
        if loss is not None:
            self.metrics = {"loss": float(loss)}
            self._record(float(loss))
        asked = self.run.asked
        ending, saving = self._any(asked.stop or stop, asked.save)
        asked.save = False
        if ending or saving or step % self.every == 0:
            self.save()
        self._tell_outcomes()
        return not ending

    def save(self) -> None:
        """Start to save what was done so far; returns when the copy is taken."""
        origin = Origin(
            world_size=self.checkpointer.world,
            dataset=self.run.spec.data if self.run.spec else None,
            job=self.run.place.job_key,
            attempt=self.run.place.attempt,
        )
        facts = Facts(
            self.step, self.samples, origin, self.state.extras(), self.metrics
        )
        self.checkpointer.save(facts, self.state.shards())
        self.saved_step = self.step

    def finish(self) -> None:
        """Save what is not saved, see it through; end the process if it was stopped.

        A run that was asked to stop before its end leaves with exit code 75: not done,
        start me again.
        """
        self.pulse.beat(self.step, Phase.OTHER)
        if self.step != self.saved_step:
            self.save()
        self.checkpointer.wait()
        self._tell_outcomes()
        (stopped,) = self._any(self.run.asked.stop)
        if stopped:
            self.run.event(
                "training-stopped", f"Stopped after step {self.step}.", step=self.step
            )
            if dist.is_available() and dist.is_initialized():
                dist.destroy_process_group()
            sys.exit(RankExit.STOPPED_EARLY)
        self.run.event(
            "training-finished",
            f"Finished {counted(self.step, 'step')}.",
            step=self.step,
        )

    def _record(self, loss: float) -> None:
        if self.run.place.rank != 0:
            return
        if self.journal is None:
            exact = not torch.cuda.is_available() or (
                torch.are_deterministic_algorithms_enabled()
            )
            conditions = Conditions("torch", self.checkpointer.world, exact)
            self.journal = Journal(self.run.place.run_folder.journal, conditions)
        self.journal.record(Entry(self.step, "-", loss, math.nan, 0.0))

    def _any(self, *flags: bool) -> list[bool]:
        """Return which flags are true on any rank."""
        if self.checkpointer.world == 1:
            return list(flags)
        device = torch.device("cpu")
        if dist.get_backend() == "nccl":
            device = torch.device("cuda", torch.cuda.current_device())
        values = torch.tensor([float(flag) for flag in flags], device=device)
        dist.all_reduce(values)
        return [value > 0 for value in values.tolist()]

    def _prove(self, found: Checkpoint, same: bool) -> None:
        shards = self.state.shards()
        if not same:
            own = {shard.key for shard in rng_shards()}
            shards = [shard for shard in shards if shard.key not in own]
        saved = {
            key: entry
            for key, entry in found.manifest.tensors.items()
            if same or not key.startswith(RNG)
        }
        prove_state(shards, saved)

    def _tell_rejected(self, one: Rejected) -> None:
        self.run.event(
            "checkpoint-rejected", f"{one.folder.name} was passed over: {one.reason}."
        )

    def _tell_outcomes(self) -> None:
        for outcome in self.checkpointer.outcomes():
            if outcome.path is None:
                self.run.event(
                    "checkpoint-failed",
                    f"The checkpoint of step {outcome.step} failed: {outcome.reason}",
                    step=outcome.step,
                )
            else:
                self.run.event(
                    "checkpoint-saved",
                    f"Checkpoint of step {outcome.step}: {outcome.seconds:.2f} s, held "
                    f"the step up for {outcome.stall * 1e3:.0f} ms.",
                    step=outcome.step,
                    path=str(outcome.path),
                )
