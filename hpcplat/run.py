"""What a training script needs to be a good job: rank, data, log, checkpoints, an end.

    import hpcplat.run

    run = hpcplat.run.current()
    saver = run.saver(model, optimizers=[optimizer])
    for step in range(saver.resume(), steps):
        loss = ...
        run.log({"loss": loss}, step + 1)
        if not saver.after(step + 1, samples=(step + 1) * batch):
            break
    saver.finish()

Outside of an hpcplat job (a laptop, a notebook) the same lines run in one process, with a
run folder in the current one.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hpcplat import eventlog
from hpcplat.allocation import RankPlacement, placement_outside, rank_placement
from hpcplat.errors import InvalidError, NotFoundError
from hpcplat.eventlog import RunEvent
from hpcplat.jobs import JobSpec, read_spec
from hpcplat.parallel import RankPlace, place_of
from hpcplat.runfolder import RunFolder
from hpcplat.signals import Asked
from hpcplat.tracking.layout import MAIN
from hpcplat.tracking.writer import MetricsWriter

if TYPE_CHECKING:
    import torch

    from hpcplat.checkpoints.torch_state import Stateful
    from hpcplat.datasets import DatasetVersion
    from hpcplat.saver import Saver

LOCAL_FOLDER: Final = "hpcplat-run"


@dataclass
class Run:
    """The job that this process is a rank of."""

    place: RankPlacement
    asked: Asked = field(default_factory=Asked)

    @property
    def rank(self) -> int:
        """This rank, of all."""
        return self.place.rank

    @property
    def world_size(self) -> int:
        """How many ranks there are."""
        return self.place.world_size

    @property
    def local_rank(self) -> int:
        """This rank, of those on this node: its GPU."""
        return self.place.local_rank

    @property
    def folder(self) -> RunFolder:
        """The run folder, which all ranks share."""
        return self.place.run_folder

    @cached_property
    def spec(self) -> JobSpec | None:
        """What was asked for; None outside of a job."""
        path = self.folder.spec
        return read_spec(path) if path.is_file() else None

    @cached_property
    def layout(self) -> RankPlace:
        """This rank's coordinates in the spec's parallel layout."""
        if self.spec is None:
            raise NotFoundError("There is no job spec.", "Run it as an hpcplat job.")
        return place_of(self.spec.parallelism, self.spec.allocation, self.rank)

    @property
    def stop_asked(self) -> bool:
        """Whether this rank was asked to save and stop (the time limit is near)."""
        return self.asked.stop

    def dataset(
        self, name: str | None = None, root: str | None = None
    ) -> DatasetVersion:
        """Open a dataset: ``name``, or the one that the spec names under ``data``.

        It is read from the node's own disk where the job staged it.
        """
        from hpcplat import datasets  # needs numpy

        wanted = name or (self.spec.data if self.spec else None)
        if wanted is None:
            raise InvalidError("No dataset was named.", "Give data: in the job spec.")
        return datasets.open(wanted, root, staged=self.place.staged)

    def log(
        self, values: Mapping[str, Any], step: int, *, per_rank: bool = False
    ) -> None:
        """Log values of a step as the run's own; what other ranks than 0 say is dropped.

        With ``per_rank`` every rank's values are kept, by rank. Returns at once and
        never raises: no metric is worth a training.
        """
        if per_rank:
            self._rank_writer.log(values, step)
        elif self.rank == 0:
            self._writer.log(values, step)

    @cached_property
    def _writer(self) -> MetricsWriter:
        return self._new_writer(MAIN)

    @cached_property
    def _rank_writer(self) -> MetricsWriter:
        return self._new_writer(f"rank-{self.rank}")

    def _new_writer(self, source: str) -> MetricsWriter:
        folder = self.folder.root
        folder.mkdir(parents=True, exist_ok=True)
        return MetricsWriter(folder, self.rank, self.place.attempt, source=source)

    def event(self, kind: str, what: str, **details: Any) -> None:  # noqa: ANN401
        """Say something, and append it to the job's events. On rank 0."""
        if self.rank == 0:
            print(what, flush=True)  # noqa: T201 - a script's log is its output
            event = RunEvent(kind, what, self.place.attempt, details=details)
            try:
                eventlog.append(self.folder.events, event)
            except OSError as error:  # a full disk: the training goes on
                told = f"hpcplat: the event was not written: {error}"
                print(told, file=sys.stderr)  # noqa: T201

    def saver(
        self,
        model: torch.nn.Module,
        optimizers: Sequence[torch.optim.Optimizer] = (),
        others: Mapping[str, Stateful] | None = None,
        every: int | None = None,
    ) -> Saver:
        """Return what saves and resumes a PyTorch training: plain, DDP or FSDP.

        ``others`` have a state of plain values (schedulers, scalers, cursors), by name.
        ``every`` steps, or as the spec says. Call it once the process group is there
        and the model is wrapped.
        """
        from hpcplat.saver import Saver  # needs torch

        return Saver.of(self, model, optimizers, others or {}, every)


def current() -> Run:
    """Return the run of this process, and begin to listen to what it is asked.

    For the main thread. Outside of a job: a run of one rank in ./hpcplat-run.
    """
    try:
        place = rank_placement()
    except NotFoundError:
        folder = RunFolder(Path.cwd() / LOCAL_FOLDER)
        folder.root.mkdir(exist_ok=True)
        place = placement_outside(folder)
    run = Run(place)
    run.asked.listen()
    return run
