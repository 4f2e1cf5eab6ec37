"""Datasets: versions in Zarr shards, read at the speed of memory, in a fixed order."""

from __future__ import annotations

from hpcplat.datasets.cursor import Cursor
from hpcplat.datasets.images import Augmentation, ImageRows, Normalization
from hpcplat.datasets.loader import Loader, Reading
from hpcplat.datasets.mixture import Mixture, Part
from hpcplat.datasets.samples import Columns, Joined
from hpcplat.datasets.version import DatasetVersion, Split
from hpcplat.datasets.version import open_version as open
from hpcplat.datasets.windows import TokenWindows

__all__ = [
    "Augmentation",
    "Columns",
    "Cursor",
    "DatasetVersion",
    "ImageRows",
    "Joined",
    "Loader",
    "Mixture",
    "Normalization",
    "Part",
    "Reading",
    "Split",
    "TokenWindows",
    "open",
]
