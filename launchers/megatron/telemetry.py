"""What a run tells of itself: metrics, a line a step, and events. Rank 0 speaks."""

from __future__ import annotations

import json
import resource
from collections import deque
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import torch

from hpcplat import eventlog
from hpcplat.allocation import RankPlacement
from hpcplat.eventlog import RunEvent
from hpcplat.tracking import MetricsWriter, provenance
from hpcplat.training import Training
from launchers.megatron.step import StepResult

# Dense FLOP/s of one GPU by (part of its name, precision): NVIDIA's data sheets, without
# sparsity.
PEAKS = {
    ("H100", "bf16"): 989e12,
    ("H100", "fp16"): 989e12,
    ("H200", "bf16"): 989e12,
    ("H200", "fp16"): 989e12,
    ("A100", "bf16"): 312e12,
    ("A100", "fp16"): 312e12,
}


KEPT = 100  # events, while they can't be written


@dataclass(slots=True)
class Telemetry:
    """Writes metrics and events of a run; does nothing on other ranks than 0."""

    training: Training
    place: RankPlacement
    writer: MetricsWriter | None = None
    peak: float | None = None
    last: float = field(default_factory=monotonic)
    unwritten: deque[RunEvent] = field(default_factory=lambda: deque(maxlen=KEPT))

    def __post_init__(self) -> None:
        """Open the writer, on rank 0."""
        if self.place.rank == 0:
            self.writer = MetricsWriter(
                self.place.run_folder.root, attempt=self.place.attempt
            )
        self.peak = peak_flops(self.training.settings.precision.format)
        if self.peak and self.place.rank == 0:
            print(measure_of_mfu(self.training, self.peak, self.place.world_size))

    def event(self, kind: str, what: str, **details: Any) -> None:  # noqa: ANN401
        """Append an event to the run folder, and say it."""
        if self.place.rank == 0:
            print(what, flush=True)
            self.unwritten.append(
                RunEvent(kind, what, self.place.attempt, details=details)
            )
            self._write_events()

    def _write_events(self) -> None:
        """Append what waits, in order; a full disk takes it later."""
        try:
            while self.unwritten:
                eventlog.append(self.place.run_folder.events, self.unwritten[0])
                self.unwritten.popleft()
        except OSError as error:
            print(f"The event could not be written: {error.strerror}", flush=True)

    def step(self, done: int, result: StepResult) -> None:
        """Write the metrics of step ``done`` (from 1)."""
        now = monotonic()
        seconds, self.last = now - self.last, now
        if self.writer is None:
            return
        values = self._values(result, seconds)
        self.writer.log(values, done)
        print(_line(done, self.training.settings.steps, values), flush=True)

    def metrics(self, done: int, **values: float) -> None:
        """Write other metrics of a step."""
        if self.writer is not None:
            self.writer.log(values, done)

    def code_commit(self) -> str | None:
        """Return the Git commit that the attempt's record names; None if it does not."""
        attempt = self.place.run_folder.attempt(self.place.attempt)
        try:
            record = json.loads((attempt.root / provenance.FILE).read_bytes())
            return str(record["code"]["commit"]) or None
        except (OSError, ValueError, KeyError):
            return None  # by hand, or not written yet

    def restart_clock(self) -> None:
        """Begin to measure: what went before belongs to no step."""
        self.last = monotonic()

    def close(self) -> None:
        """Write what waits."""
        if self.writer is not None:
            self.writer.close()

    def _values(self, result: StepResult, seconds: float) -> dict[str, float]:
        training = self.training
        tokens = training.settings.batch.global_size * training.sequence_length
        values = {
            "loss": result.loss,
            "learning_rate": result.learning_rate,
            "step_seconds": seconds,
            "data_seconds": result.data_seconds,
            "tokens_per_second": tokens / seconds,
            "memory_gib": memory_gib(),
        }
        if result.grad_norm is not None:
            values["grad_norm"] = result.grad_norm
        if training.settings.precision.format == "fp16":
            values["loss_scale"] = result.loss_scale
        if self.peak:
            flops = training.model.flops_per_token(training.sequence_length) * tokens
            values["mfu"] = flops / seconds / (self.peak * self.place.world_size)
        return values


def peak_flops(precision: str) -> float | None:
    """Return the dense FLOP/s that MFU is measured against; None where unknown."""
    if not torch.cuda.is_available():
        return None
    name = torch.cuda.get_device_name()
    return next(
        (
            peak
            for (part, kind), peak in PEAKS.items()
            if part in name and kind == precision
        ),
        None,
    )


def measure_of_mfu(training: Training, peak: float, world: int) -> str:
    """Return in words what MFU is of: its denominator, and which FLOPs are counted."""
    precision = training.settings.precision.format
    flops = training.model.flops_per_token(training.sequence_length)
    return (
        f"MFU: of {world} x {peak / 1e12:.0f} TFLOP/s (dense {precision}, NVIDIA's data "
        f"sheet); {flops / 1e9:.3f} GFLOP a token, forward and backward, none for "
        "recomputation (arXiv:2204.02311, appendix B)."
    )


def memory_gib() -> float:
    """Return the most memory held so far: the GPU's, or this process's."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 2**30
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def _line(done: int, steps: int, values: dict[str, float]) -> str:
    norm = values.get("grad_norm", float("nan"))
    mfu = f" mfu {values['mfu']:.1%}" if "mfu" in values else ""
    return (
        f"step {done}/{steps} loss {values['loss']:.6f} grad norm {norm:.4f} "
        f"lr {values['learning_rate']:.3e} {values['step_seconds'] * 1e3:.0f} ms "
        f"{values['tokens_per_second']:.0f} tokens/s{mfu}"
    )
