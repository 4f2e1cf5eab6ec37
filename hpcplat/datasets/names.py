"""How datasets, versions and tags are named, and where each lies under a root."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from hpcplat.errors import InvalidError

LATEST = "latest"
SHORT = 12

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_DIGITS = re.compile(r"[0-9a-f]{4,64}")  # fewer would name a version by chance


def check_name(name: str, what: str = "dataset") -> str:
    """Return a name that is safe as a folder's name; else raise InvalidError."""
    if not _NAME.fullmatch(name):
        raise InvalidError(
            f"{name!r} cannot name a {what}.",
            "Use letters, digits, dots, dashes and underscores, at most 100.",
        )
    return name


def is_digest(text: str) -> bool:
    """Say whether this is a whole digest."""
    return bool(_DIGEST.fullmatch(text))


@dataclass(frozen=True, slots=True)
class Reference:
    """``name`` or ``name@version``; a version is a tag or the first digits of a digest.

    ``name:tag`` is read too. Where both fit, the tag wins: people chose it.
    """

    name: str
    version: str = LATEST

    @classmethod
    def parse(cls, text: str) -> Reference:
        """Read a reference as people write it."""
        name, separator, version = text.replace(":", "@", 1).partition("@")
        check_name(name)
        return cls(name, check_name(version, "version") if separator else LATEST)

    @property
    def may_be_digest(self) -> bool:
        """Say whether the version could be (the first digits of) a digest."""
        return bool(_DIGITS.fullmatch(self.version))


@dataclass(frozen=True, slots=True)
class DatasetPaths:
    """Every name under the folder of one dataset."""

    folder: Path

    @classmethod
    def under(cls, root: Path, name: str) -> DatasetPaths:
        """Return the paths of the dataset ``name`` under a root folder."""
        return cls(root / check_name(name))

    @property
    def versions(self) -> Path:
        """Holds a folder for each version, named by its digest."""
        return self.folder / "versions"

    @property
    def tags(self) -> Path:
        """Holds a file for each tag, with a digest in it."""
        return self.folder / "tags"

    @property
    def drafts(self) -> Path:
        """Holds what is being written; nothing in it was ever published."""
        return self.folder / "drafts"

    @property
    def lock(self) -> Path:
        """Locked by whoever changes this dataset."""
        return self.folder / "lock"

    def version(self, digest: str) -> Path:
        """Return a version's folder."""
        return self.versions / digest
