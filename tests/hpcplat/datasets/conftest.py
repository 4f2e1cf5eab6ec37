from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from hpcplat.datasets.codecs import compressors
from hpcplat.datasets.manifest import Kind
from hpcplat.datasets.version import DatasetVersion
from storage.layout import Layout
from storage.publishing import Draft, changing
from storage.writing import ArrayWriter

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
            draft = Draft(paths, "draft", kind)
            for array, values in arrays.items():
                writer = ArrayWriter(
                    draft.folder / "train" / array,
                    values.dtype,
                    values.shape[1:],
                    layout=Layout(64, 4096),
                    compressors=compressors(how, values.dtype.itemsize),
                )
                writer.append(values)
                draft.add_array("train", array, writer)
            draft.set_samples("train", len(next(iter(arrays.values()))))
            manifest = draft.publish(attributes, {})
        return DatasetVersion(paths.version(manifest.digest))

    return make


@pytest.fixture
def tokens() -> npt.NDArray[np.uint16]:
    return np.random.default_rng(1).integers(0, 1000, 50_000).astype(np.uint16)
