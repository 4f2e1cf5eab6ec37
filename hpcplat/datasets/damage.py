"""The error of data at rest that is not what was written."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from hpcplat.errors import HpcplatError


class DamagedError(HpcplatError):
    """A file of a dataset is missing, cut short, or holds other bytes than written."""

    @classmethod
    def of(cls, path: Path, fault: str) -> Self:
        """Return the error for one file, with the usual remedy."""
        return cls(
            f"{path} {fault}.",
            "Run `hpcplat data verify`, and restore the file from a copy.",
        )


class RemovedError(HpcplatError):
    """A version of a dataset that is being removed while it is opened."""

    @classmethod
    def of(cls, folder: Path) -> Self:
        """Return the error for a version's folder."""
        return cls(f"{folder} is being removed.", "Name another version.")
