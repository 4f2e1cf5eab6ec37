"""Datasets: versions in Zarr shards, read at the speed of memory, in a fixed order.

The names below are loaded when they are first used: who only asks which datasets there
are (the service, the command line) needs no NumPy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
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

HOMES: Final = {
    "Augmentation": "images",
    "Columns": "samples",
    "Cursor": "cursor",
    "DatasetVersion": "version",
    "ImageRows": "images",
    "Joined": "samples",
    "Loader": "loader",
    "Mixture": "mixture",
    "Normalization": "images",
    "Part": "mixture",
    "Reading": "loader",
    "Split": "version",
    "TokenWindows": "windows",
    "open": "version",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Load the module that holds a public name, at its first use."""
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{HOMES[name]}")
    value = getattr(module, "open_version" if name == "open" else name)
    globals()[name] = value
    return value
