"""A logger for PyTorch Lightning.

Trainer(logger=hpcplat.tracking.lightning.HpcplatLogger())
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from lightning.pytorch.loggers.logger import Logger, rank_zero_experiment
from lightning.pytorch.utilities import rank_zero_only

from hpcplat.tracking.job_writer import writer_of_job
from hpcplat.tracking.writer import MetricsWriter


class HpcplatLogger(Logger):  # type: ignore[misc]  # mypy does not see Lightning
    """Writes what Lightning logs to the job's run folder; outside of a job nowhere."""

    def __init__(self, writer: MetricsWriter | None = None) -> None:
        super().__init__()
        self._writer = writer or writer_of_job()

    @property
    def name(self) -> str:
        """What Lightning calls the logger."""
        return "hpcplat"

    @property
    def version(self) -> str:
        """Nothing: the job has its own number."""
        return ""

    @property
    @rank_zero_experiment  # type: ignore[untyped-decorator]
    def experiment(self) -> MetricsWriter | None:
        """The writer, for what Lightning does not log."""
        return self._writer

    @rank_zero_only  # type: ignore[untyped-decorator]
    def log_metrics(
        self, metrics: Mapping[str, float], step: int | None = None
    ) -> None:
        """Log numbers of a step."""
        if self._writer is not None:
            self._writer.log(metrics, step or 0)

    @rank_zero_only  # type: ignore[untyped-decorator]
    def log_hyperparams(
        self,
        params: Mapping[str, Any] | Namespace,
        *_: Any,  # noqa: ANN401 - Lightning's own
        **__: Any,  # noqa: ANN401
    ) -> None:
        """Log settings as texts."""
        values = vars(params) if isinstance(params, Namespace) else params
        if self._writer is not None and values:
            texts = {f"hparams/{name}": str(value) for name, value in values.items()}
            self._writer.log(texts, 0)

    @rank_zero_only  # type: ignore[untyped-decorator]
    def finalize(self, status: str) -> None:
        """Wait until all is written."""
        if self._writer is not None:
            self._writer.flush()
