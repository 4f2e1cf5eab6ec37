from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from hpcplat.datasets.manifest import Kind
from hpcplat.datasets.version import DatasetVersion
from storage.publishing import Draft, changing

Arrays = Mapping[str, npt.NDArray[Any]]
Made = Callable[..., DatasetVersion]


@pytest.fixture
def make_version(tmp_path: Path) -> Made:
    """Publish a version with one split, ``train``, of these arrays."""

    def make(
        arrays: Arrays,
        kind: Kind = "tokens",
        name: str = "made",
        how: str = "none",
        **attributes: object,
    ) -> DatasetVersion:
        with changing(tmp_path, name) as paths:
            draft = Draft(paths, "draft", kind, shard_bytes=2**16)
            for array, values in arrays.items():
                row_shape = values.shape[1:]
                writer = draft.array("train", array, values.dtype, row_shape, how)
                writer.append(values)
            draft.set_samples("train", len(next(iter(arrays.values()))))
            manifest = draft.publish(attributes, {})
        return DatasetVersion(paths.version(manifest.digest))

    return make


@pytest.fixture
def tokens() -> npt.NDArray[np.uint16]:
    return np.random.default_rng(1).integers(0, 1000, 50_000).astype(np.uint16)
