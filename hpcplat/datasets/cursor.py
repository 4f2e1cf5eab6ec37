"""The order of samples: the same for every number of ranks, and a few integers large.

A run applies samples in one global order. Position p stands for one sample: number
``permutation(seed, epoch)(p mod samples)`` with epoch ``p div samples``. Who reads it
is decided afterwards, so world size, layout and worker count change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from hpcplat.datasets.permutation import Permutation
from hpcplat.errors import ConflictError, InvalidError

Numbers = npt.NDArray[np.int64]

STATE_FORMAT = 1


class Order(Protocol):
    """An endless order of samples with a place in it: a cursor or a mixture."""

    position: int

    def at(self, positions: npt.ArrayLike) -> Numbers:
        """Return the samples at these positions of the global order; any shape."""
        ...

    def state(self) -> dict[str, Any]:
        """Return the whole state, for a checkpoint."""
        ...


class Cursor:
    """A place in the endless order of ``samples`` samples, epoch after epoch.

    ``dataset`` is the digest of what is read; a state for another one is refused.
    With ``shuffle`` off, every epoch runs from 0 upwards.
    """

    def __init__(
        self,
        samples: int,
        seed: int,
        *,
        position: int = 0,
        shuffle: bool = True,
        dataset: str = "",
    ) -> None:
        if samples < 1 or position < 0:
            raise InvalidError(
                f"An order of {samples} samples from position {position}.",
                "Use at least one sample and a position from 0.",
            )
        self.samples = samples
        self.seed = seed
        self.position = position
        self.shuffle = shuffle
        self.dataset = dataset

    @property
    def epoch(self) -> int:
        """The epoch that the next sample belongs to."""
        return self.position // self.samples

    def at(self, positions: npt.ArrayLike) -> Numbers:
        """Return the samples at these positions of the global order; any shape."""
        epochs, places = np.divmod(np.asarray(positions, np.int64), self.samples)
        if not self.shuffle or not places.size:
            return places
        first, last = int(epochs.min()), int(epochs.max())
        if first == last:
            return self._permutation(first)(places)
        found = np.empty_like(places)
        for epoch in range(first, last + 1):
            within = epochs == epoch
            found[within] = self._permutation(epoch)(places[within])
        return found

    def indices(self, start: int, count: int) -> Numbers:
        """Return the samples at positions start … start+count-1, whatever the epoch."""
        return self.at(np.arange(start, start + count, dtype=np.int64))

    def take(self, count: int) -> Numbers:
        """Return the next ``count`` samples and move on."""
        found = self.indices(self.position, count)
        self.position += count
        return found

    def share(self, batch: int, rank: int, world: int) -> Numbers:
        """Return this rank's part of the next global batch; does not move on.

        Part r of w is the stretch from batch*r/w to batch*(r+1)/w, so the parts of
        all ranks in a row are the global batch for any number of ranks.
        """
        first, last = share_of(batch, rank, world)
        return self.indices(self.position + first, last - first)

    def _permutation(self, epoch: int) -> Permutation:
        return Permutation(self.samples, f"{self.seed}/{epoch}")

    def state(self) -> dict[str, Any]:
        """Return the whole state, for a checkpoint: JSON, under 1 KiB."""
        return {
            "format": STATE_FORMAT,
            "samples": self.samples,
            "seed": self.seed,
            "position": self.position,
            "shuffle": self.shuffle,
            "dataset": self.dataset,
        }

    @classmethod
    def from_state(
        cls, state: Mapping[str, Any], *, samples: int | None = None, dataset: str = ""
    ) -> Self:
        """Return the cursor of a stored state.

        Raises ConflictError when it belongs to another dataset or sample count.
        """
        check_state(state, samples, dataset)
        return cls(
            state["samples"],
            state["seed"],
            position=state["position"],
            shuffle=state["shuffle"],
            dataset=state["dataset"],
        )


def share_of(batch: int, rank: int, world: int) -> tuple[int, int]:
    """Return where rank's part of a batch begins and ends."""
    if not 0 <= rank < world:
        raise InvalidError(f"Rank {rank} of {world}.", "Ranks run from 0.")
    return batch * rank // world, batch * (rank + 1) // world


def check_state(
    state: Mapping[str, Any], samples: int | list[int] | None, dataset: str
) -> None:
    """Refuse a state of another format, dataset or sample count."""
    if state.get("format") != STATE_FORMAT:
        raise InvalidError(
            f"A data order of format {state.get('format')} is not known here.",
            "Resume with the release that wrote it.",
        )
    if dataset and state["dataset"] and dataset != state["dataset"]:
        raise ConflictError(
            f"The order belongs to dataset {state['dataset'][:12]}, not {dataset[:12]}.",
            "Resume with the same version, or start a new order.",
        )
    if samples is not None and samples != state["samples"]:
        raise ConflictError(
            f"The order is of {state['samples']} samples, but there are {samples}.",
            "Resume with the same version and window length.",
        )
