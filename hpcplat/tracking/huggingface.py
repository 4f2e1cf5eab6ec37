"""A callback for the Trainer of Hugging Face's transformers.

Trainer(…, callbacks=[hpcplat.tracking.huggingface.HpcplatCallback()])
"""

from __future__ import annotations

from typing import Any

from transformers import (
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from hpcplat.tracking.job_writer import writer_of_job
from hpcplat.tracking.writer import MetricsWriter


class HpcplatCallback(TrainerCallback):  # type: ignore[misc]  # not seen by mypy
    """Writes what the Trainer logs to the job's run folder; outside of a job nowhere."""

    def __init__(self, writer: MetricsWriter | None = None) -> None:
        self._writer = writer or writer_of_job()

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **_: Any,  # noqa: ANN401 - transformers' own
    ) -> None:
        """Log what the Trainer logs, numbers only."""
        if self._writer is None or not state.is_world_process_zero:
            return
        numbers = {k: v for k, v in (logs or {}).items() if isinstance(v, float | int)}
        self._writer.log(numbers, state.global_step)

    def on_train_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **_: Any,  # noqa: ANN401
    ) -> None:
        """Wait until all is written."""
        if self._writer is not None:
            self._writer.flush()
