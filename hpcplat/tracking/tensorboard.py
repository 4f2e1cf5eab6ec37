"""A SummaryWriter with TensorBoard's methods that writes to the job's run folder.

    from hpcplat.tracking.tensorboard import SummaryWriter

Outside of a job it does nothing. Scripts that keep TensorBoard's own are tracked too.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from hpcplat.tracking.job_writer import writer_of_job
from hpcplat.tracking.values import Distribution, Image
from hpcplat.tracking.writer import MetricsWriter


class SummaryWriter:
    """TensorBoard's methods (torch.utils.tensorboard), over a MetricsWriter.

    ``log_dir`` and the other arguments of TensorBoard's are taken and not used.
    """

    def __init__(
        self,
        log_dir: str | None = None,
        *_: Any,  # noqa: ANN401 - whatever TensorBoard's takes
        writer: MetricsWriter | None = None,
        **__: Any,  # noqa: ANN401
    ) -> None:
        self.log_dir = log_dir or ""
        self._writer = writer or writer_of_job()
        self._step = 0

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()

    def add_scalar(
        self,
        tag: str,
        scalar_value: Any,  # noqa: ANN401 - numbers of any library
        global_step: int | None = None,
        walltime: float | None = None,
        **_: Any,  # noqa: ANN401
    ) -> None:
        """Log a number."""
        self._log(tag, scalar_value, global_step, walltime)

    def add_scalars(
        self,
        main_tag: str,
        tag_scalar_dict: Mapping[str, Any],
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """Log numbers that belong together, as ``main_tag/name``."""
        for name, value in tag_scalar_dict.items():
            self._log(f"{main_tag}/{name}", value, global_step, walltime)

    def add_text(
        self,
        tag: str,
        text_string: str,
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """Log a text."""
        self._log(tag, str(text_string), global_step, walltime)

    def add_histogram(
        self,
        tag: str,
        values: Any,  # noqa: ANN401
        global_step: int | None = None,
        bins: int | str = 64,
        walltime: float | None = None,
        **_: Any,  # noqa: ANN401
    ) -> None:
        """Log a distribution, in equal bins."""
        count = bins if isinstance(bins, int) else 64
        self._log(tag, Distribution(values, count), global_step, walltime)

    def add_image(
        self,
        tag: str,
        img_tensor: Any,  # noqa: ANN401
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        """Log an image; ``dataformats`` names its dimensions: CHW, HWC or HW."""
        if hasattr(img_tensor, "detach"):
            img_tensor = img_tensor.detach().cpu().numpy()
        if dataformats == "CHW":
            img_tensor = img_tensor.transpose(1, 2, 0)
        self._log(tag, Image(img_tensor), global_step, walltime)

    def add_figure(
        self,
        tag: str,
        figure: Any,  # noqa: ANN401
        global_step: int | None = None,
        close: bool = True,
        walltime: float | None = None,
    ) -> None:
        """Log a figure of Matplotlib; it is not closed."""
        self._log(tag, figure, global_step, walltime)

    def add_hparams(
        self,
        hparam_dict: Mapping[str, Any],
        metric_dict: Mapping[str, Any],
        **_: Any,  # noqa: ANN401
    ) -> None:
        """Log settings as texts, and what they led to as numbers."""
        for name, value in hparam_dict.items():
            self._log(f"hparams/{name}", str(value), 0, None)
        for name, value in metric_dict.items():
            self._log(name, value, None, None)

    def add_graph(self, *_: Any, **__: Any) -> None:  # noqa: ANN401
        """Do nothing: a graph is no metric."""

    def flush(self) -> None:
        """Wait until all is written."""
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        """Write what waits, and end."""
        if self._writer is not None:
            self._writer.close()

    def _log(self, name: str, value: Any, step: int | None, time: float | None) -> None:  # noqa: ANN401
        if step is None:
            step, self._step = self._step, self._step + 1
        if self._writer is not None:
            self._writer.log({name: value}, step, time=time)
