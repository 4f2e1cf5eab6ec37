"""Datasets under a root folder: which there are, and what a name stands for."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from hpcplat.datasets.manifest import FILE_NAME
from hpcplat.datasets.names import DatasetPaths, Reference, is_digest
from hpcplat.errors import InvalidError, NotFoundError
from hpcplat.settings import datasets_folder


class Store:
    """The datasets under ``root``; reading only."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or datasets_folder()

    def names(self) -> Sequence[str]:
        """Return the datasets, sorted."""
        if not self.root.is_dir():
            return []
        folders = (path for path in self.root.iterdir() if not path.is_symlink())
        return sorted(path.name for path in folders if (path / "versions").is_dir())

    def versions(self, name: str) -> Sequence[str]:
        """Return the digests of a dataset's versions, oldest first.

        Raises NotFoundError when there is no such dataset.
        """
        folder = self._paths(name).versions
        found = [path for path in folder.iterdir() if is_digest(path.name)]
        return [path.name for path in sorted(found, key=_published)]

    def tags(self, name: str) -> dict[str, str]:
        """Return a dataset's tags and the digests they stand for."""
        folder = self._paths(name).tags
        if not folder.is_dir():
            return {}
        tags = sorted(
            path for path in folder.iterdir() if not path.name.startswith(".")
        )
        return {path.name: path.read_text().strip() for path in tags}

    def digest(self, reference: Reference) -> str:
        """Return the whole digest that a reference stands for.

        Raises NotFoundError, or InvalidError when a short digest fits several.
        """
        tags = self.tags(reference.name)
        if reference.version in tags:
            return tags[reference.version]
        found = self._starting(reference)
        if not found:
            known = ", ".join(tags) or "none"
            raise NotFoundError(
                f"{reference.name} has no version {reference.version}.",
                f"Name a tag ({known}) or at least 4 digits of a digest; "
                f"`hpcplat data ls {reference.name}` shows all.",
            )
        if len(found) > 1:
            raise InvalidError(
                f"{reference.version} fits {len(found)} versions of {reference.name}.",
                "Give more digits.",
            )
        return found[0]

    def folder(self, reference: str) -> Path:
        """Return the folder of ``name`` or ``name@version``."""
        parsed = Reference.parse(reference)
        return self._paths(parsed.name).version(self.digest(parsed))

    def _starting(self, reference: Reference) -> Sequence[str]:
        if not reference.may_be_digest:
            return []
        versions = self.versions(reference.name)
        return [digest for digest in versions if digest.startswith(reference.version)]

    def _paths(self, name: str) -> DatasetPaths:
        paths = DatasetPaths.under(self.root, name)
        if not paths.versions.is_dir():
            raise NotFoundError(
                f"There is no dataset {name} under {self.root}.",
                "See `hpcplat data ls`, or give --root.",
            )
        return paths


def _published(version: Path) -> tuple[float, str]:
    return (version / FILE_NAME).stat().st_mtime, version.name


def locate(name_or_path: str | os.PathLike[str], root: Path | None = None) -> Path:
    """Return a version's folder from its path or from a reference.

    What contains a slash, or is a folder with a manifest, is a path.
    """
    path = Path(name_or_path)
    if "/" in os.fspath(name_or_path) or (path / FILE_NAME).is_file():
        if not path.is_dir():
            raise NotFoundError(f"There is no folder {path}.", "Check the path.")
        return path.absolute()
    return Store(root).folder(os.fspath(name_or_path))
