"""The loop of a training run: steps, checkpoints, evaluations, and how it ends."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

from hpcplat.checkpoints.checkpointer import Checkpointer, Outcome
from hpcplat.checkpoints.folder import Rejected
from hpcplat.checkpoints.manifest import Origin
from hpcplat.checkpoints.together import find_newest, from_all
from hpcplat.checkpoints.writing import Facts
from hpcplat.errors import ConflictError
from hpcplat.journal import Entry, Journal
from hpcplat.pulse import Phase, Pulse
from hpcplat.quantities import spoken_size
from hpcplat.signals import Asked, RankExit
from launchers.megatron.cadence import Cadence
from launchers.megatron.resume import Resumed, resume, resume_from_memory
from launchers.megatron.space import Space
from launchers.megatron.state import extras, rng_shards, settle, state_shards
from launchers.megatron.step import (
    Live,
    Signals,
    StepResult,
    evaluate,
    train_step,
)
from launchers.megatron.telemetry import Telemetry
from launchers.memory import Found, MemoryCopies
from launchers.waiting import Waiting

# After so many bad steps in a row, or so many returns, something is wrong with the run.
MOST_BAD_STEPS = 10
MOST_RETURNS = 3


class LossNotFiniteError(ConflictError):
    """The loss or the gradients are no numbers: at which step, on which samples."""


@dataclass(slots=True)
class Loop:
    """A run in progress: what was done, and what it is done with.

    ``step`` counts steps done; ``samples`` says where the order of samples goes on.
    ``journal`` is rank 0's.
    """

    live: Live
    checkpointer: Checkpointer
    cadence: Cadence
    telemetry: Telemetry
    asked: Asked
    origin: Origin
    pulse: Pulse
    copies: MemoryCopies
    waiting: Waiting
    space: Space
    journal: Journal | None = None
    step: int = 0
    samples: int = 0
    saved_step: int = -1
    bad_steps: int = 0
    returns: int = 0
    save_failed: bool = False
    own: float = 0.0  # seconds in steps without waits for others
    copied: float = 0.0  # seconds that steps waited for copies in memory
    metrics: dict[str, float] = field(default_factory=dict)

    @property
    def rank(self) -> int:
        """This rank."""
        return self.checkpointer.rank

    def begin(self) -> None:
        """Go on from the newest whole checkpoint, if there is one."""
        self._wait_for_room()
        self._prepare_copies()
        copy = resume_from_memory(self.live, self.copies, self.checkpointer.folder)
        if copy is not None:
            self._take_up_copy(copy)
            return
        found = find_newest(self.checkpointer.folder, self._tell_rejected)
        if found is not None:
            self._take_up(resume(self.live, found, self.origin.dataset_digest or ""))
        self.telemetry.restart_clock()

    def _prepare_copies(self) -> None:
        """Get the memory for copies, or do without on all ranks where a node has none."""
        shards = state_shards(self.live) + rng_shards(self.live.place)
        self.copies.hello()
        rooms = from_all(
            self.copies.room(shards, self.live.training.allocation.ranks_per_node)
        )
        tight = [
            (rank, room)
            for rank, room in enumerate(rooms)
            if room is not None and not room.suffices
        ]
        if not tight:
            self.copies.prepare(shards)
            return
        self.copies.close()
        rank, room = tight[0]
        self.telemetry.event(
            "memory-copies-off",
            f"No copies in memory: on the node of rank {rank} they would take "
            f"{spoken_size(room.needed)}, and {spoken_size(room.free)} are free.",
            needed=room.needed,
            free=room.free,
        )

    def run(self) -> int:
        """Train to the last step, or until asked to stop; returns the exit code."""
        settings = self.live.training.settings
        while self.step < settings.steps:
            begun, waited = time.monotonic(), self.waiting.seconds
            result = train_step(self.live, self.step, self.samples, self._signals)
            waited = self.waiting.seconds - waited
            self.own += time.monotonic() - begun - waited
            self._after(result)
            if result.signals.stop:
                return self._stop()
        return self._finish()

    def _after(self, result: StepResult) -> None:
        if result.signals.save_failed:
            self.checkpointer.abandon()
        self._look_at_saves()
        if _is_bad(result):
            self._bad_step(result)
        else:
            self.bad_steps = 0
            self._done(result)
        if self.saved_step == self.step:
            return  # it went back to a checkpoint, and saved there
        if self.copies.due(self.step) and not result.signals.copying:
            self._copy()
        self._evaluate_if_due()  # first: a checkpoint may be kept for its loss
        late = result.signals.save_failed and self._wait_for_room()
        if late or result.signals.save or self._is_due_by_step():
            self.save()

    def _wait_for_room(self) -> bool:
        """Wait where the disk is full or gone; True if it was."""
        self.pulse.beat(self.step, Phase.OTHER, self.own)
        waited = self.space.wait(self.telemetry.event, lambda: self.asked.stop)
        self.pulse.beat(self.step, own=self.own)
        if waited:
            self.telemetry.restart_clock()
        return waited > 0

    def _done(self, result: StepResult) -> None:
        self.step += 1
        self.samples += self.live.batches.batch
        self.pulse.beat(self.step, own=self.own)
        self.metrics = {"loss": result.loss}
        if self.journal is not None:
            norm = math.nan if result.grad_norm is None else result.grad_norm
            self.journal.record(
                Entry(
                    self.step,
                    result.samples,
                    result.loss,
                    norm,
                    result.learning_rate,
                    result.loss_scale,
                )
            )
        self.telemetry.step(self.step, result)

    def _signals(self) -> Signals:
        """Return what this rank tells the others with the next step."""
        automatic = self.cadence.every == "auto" and self.rank == 0
        due = automatic and self.cadence.due(self.step) and not self.checkpointer.busy
        save, self.asked.save = self.asked.save or due, False
        failed, self.save_failed = self.save_failed, False
        return Signals(self.asked.stop, failed, save, self.copies.busy)

    def _is_due_by_step(self) -> bool:
        return self.cadence.every != "auto" and self.cadence.due(self.step)

    def save(self) -> None:
        """Start to save the state after the steps done so far."""
        settle(self.live)
        facts = Facts(
            step=self.step,
            samples=self.samples,
            origin=self._known_origin(),
            extras=extras(self.live),
            metrics=self.metrics,
        )
        shards = state_shards(self.live) + rng_shards(self.live.place)
        stall = self.checkpointer.save(facts, shards)
        self.cadence.saved(stall)
        self.saved_step = self.step
        self.telemetry.metrics(self.step, checkpoint_stall_seconds=stall)

    def _known_origin(self) -> Origin:
        """Return the origin, with the code's commit once the attempt's record has it."""
        if self.origin.code is None and self.rank == 0:
            commit = self.telemetry.code_commit()
            self.origin = self.origin.model_copy(update={"code": commit})
        return self.origin

    def _look_at_saves(self) -> None:
        for outcome in self.checkpointer.outcomes():
            self.save_failed |= outcome.path is None
            self._tell_saved(outcome)

    def _tell_saved(self, outcome: Outcome) -> None:
        if outcome.path is None:
            self.telemetry.event(
                "checkpoint-failed",
                f"The checkpoint of step {outcome.step} failed: {outcome.reason}",
                step=outcome.step,
            )
        else:
            self.telemetry.event(
                "checkpoint-saved",
                f"Checkpoint of step {outcome.step}: {spoken_size(outcome.nbytes)} by "
                f"this rank in {outcome.seconds:.2f} s, held the step up for "
                f"{outcome.stall * 1e3:.0f} ms. {self.cadence}",
                step=outcome.step,
                path=str(outcome.path),
                copy_seconds=self.copied,
            )

    def _bad_step(self, result: StepResult) -> None:
        first, last = self.samples, self.samples + self.live.batches.batch - 1
        what = (
            f"The {'loss' if not math.isfinite(result.loss) else 'gradient norm'} of "
            f"step {self.step + 1} is not finite (samples {first} to {last} of the "
            "order)."
        )
        policy = self.live.training.settings.on_nan
        self.bad_steps += 1
        if policy == "stop" or self.bad_steps > MOST_BAD_STEPS:
            raise LossNotFiniteError(
                what, "Look at these samples, lower the rate, or set on_nan."
            )
        if policy == "skip":
            self.telemetry.event("step-skipped", f"{what} The step is left out.")
            self._done(result)
        else:
            self._go_back(what)

    def _go_back(self, what: str) -> None:
        """Return to the newest checkpoint, and leave out the samples since then."""
        self.returns += 1
        self.pulse.beat(self.step, Phase.OTHER, self.own)
        self.checkpointer.wait()
        found = find_newest(self.checkpointer.folder, self._tell_rejected)
        if found is None or self.returns > MOST_RETURNS:
            raise LossNotFiniteError(what, "There is nothing good to go back to.")
        onward = self.samples + self.live.batches.batch
        self._take_up(resume(self.live, found, self.origin.dataset_digest or ""))
        if self.journal is not None:
            self.journal.forget_after(self.step)
        self.telemetry.event(
            "rolled-back",
            f"{what} Back to step {self.step}; samples {self.samples} to {onward - 1} "
            "are left out.",
            step=self.step,
        )
        self.samples = onward
        # A later resume must leave the same samples out: the checkpoint says so.
        self.save()

    def _take_up(self, found: Resumed) -> None:
        self.step, self.samples = found.step, found.samples
        self.saved_step = found.step
        how = "same layout" if found.same_layout else "another layout"
        proven = self.live.training.settings.prove_resume
        self.telemetry.event(
            "resumed",
            f"Resumed after step {found.step} from {found.path.name} ({how})"
            + (": every digest is that of the save." if proven else "."),
            step=found.step,
            samples=found.samples,
            same_layout=found.same_layout,
        )

    def _take_up_copy(self, found: Found) -> None:
        self.step, self.samples = found.step, int(found.meta["samples"])
        self.telemetry.event(
            "resumed",
            f"Resumed after step {found.step} from the copies in memory.",
            step=found.step,
            samples=self.samples,
            same_layout=True,
            from_memory=True,
        )
        self.telemetry.restart_clock()

    def _copy(self) -> None:
        """Keep a copy of the state in memory, here and on another node."""
        settle(self.live)
        shards = state_shards(self.live) + rng_shards(self.live.place)
        meta = {"samples": self.samples, "extras": extras(self.live)}
        seconds = self.copies.take(self.step, meta, shards)
        self.copied += seconds
        self.telemetry.metrics(self.step, memory_copy_seconds=seconds)

    def _tell_rejected(self, one: Rejected) -> None:
        self.telemetry.event(
            "checkpoint-rejected",
            f"{one.folder.name} is not whole and was passed over: {one.reason}.",
            path=str(one.folder),
        )

    def _evaluate_if_due(self) -> None:
        settings = self.live.training.settings.evaluation
        if self.live.validation is None or not settings.every:
            return
        if self.step % settings.every == 0:
            self.pulse.beat(self.step, Phase.OTHER, self.own)
            loss = evaluate(self.live, settings.batches)
            self.pulse.beat(self.step, own=self.own)
            self.metrics["validation_loss"] = loss
            self.telemetry.metrics(self.step, validation_loss=loss)
            self.telemetry.restart_clock()

    def _stop(self) -> int:
        self._save_last()
        self.telemetry.event(
            "training-stopped",
            f"Stopped after step {self.step} as asked"
            + (f" by {self.asked.by}." if self.asked.by else "."),
            step=self.step,
            copy_seconds=self.copied,
        )
        return RankExit.STOPPED_EARLY

    def _finish(self) -> int:
        self._save_last()
        self.telemetry.event(
            "training-finished",
            f"Finished {self.step} steps.",
            step=self.step,
            copy_seconds=self.copied,
        )
        return 0

    def _save_last(self) -> None:
        """Save what is not saved yet, and see every save through."""
        self.pulse.beat(self.step, Phase.OTHER, self.own)
        if self.saved_step != self.step:
            self.save()
        self.checkpointer.wait()
        self._look_at_saves()


def _is_bad(result: StepResult) -> bool:
    norm = result.grad_norm
    return not math.isfinite(result.loss) or (norm is not None and math.isnan(norm))
