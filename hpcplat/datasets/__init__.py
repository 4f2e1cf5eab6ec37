"""Datasets: versions in Zarr shards, read at the speed of memory, in a fixed order."""

from __future__ import annotations

from hpcplat.datasets.cursor import Cursor
from hpcplat.datasets.version import DatasetVersion, Split
from hpcplat.datasets.version import open_version as open
from hpcplat.datasets.windows import TokenWindows

__all__ = ["Cursor", "DatasetVersion", "Split", "TokenWindows", "open"]
