"""Datasets for ``torch.utils.data``: single samples, or whole batches in the order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, Dataset

from hpcplat.datasets.cursor import Order
from hpcplat.datasets.loader import BatchPlan, Reading, finisher
from hpcplat.datasets.samples import Samples, mapped


class SampleDataset(Dataset[Any]):
    """Single samples by number, for samplers of your own.

    A sample's place in the order is not known here; its number stands in for it.
    """

    def __init__(self, samples: Samples) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> Any:  # noqa: ANN401 (a tensor, or several)
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return several samples at once, which is much quicker than one by one."""
        numbers = np.asarray(indices, np.int64)
        batch = finisher("torch")(self._samples.batch(numbers, numbers))
        return [
            mapped(lambda values, k=k: values[k], batch) for k in range(len(numbers))
        ]


class BatchDataset(Dataset[Any]):
    """A rank's batches of an order, from the order's position on, by number."""

    def __init__(
        self, samples: Samples, order: Order, reading: Reading, batches: int
    ) -> None:
        self._samples = samples
        self._plan = BatchPlan(order, reading)
        self._batches = batches

    def __len__(self) -> int:
        return self._batches

    def __getitem__(self, number: int) -> Any:  # noqa: ANN401 (a tensor, or several)
        if not 0 <= number < self._batches:
            raise IndexError(number)
        return finisher("torch")(self._samples.batch(*self._plan.batch(number)))


def torch_loader(
    samples: Samples,
    order: Order,
    reading: Reading,
    batches: int,
    *,
    processes: int = 0,
) -> DataLoader[Any]:
    """Return a torch DataLoader over ``batches`` batches of the order.

    Worker processes pay for heavy augmentation only: for tokens, threads (``Loader``)
    are some ten times as fast, since nothing is copied between processes. Move the
    order on yourself: ``order.position += reading.batch`` after each step.
    """
    dataset = BatchDataset(samples, order, reading, batches)
    return DataLoader(
        dataset,
        batch_size=None,
        num_workers=processes,
        pin_memory=reading.into == "pinned",
        # Threads and maps of this process do not survive a fork in good order.
        multiprocessing_context="spawn" if processes else None,
    )
