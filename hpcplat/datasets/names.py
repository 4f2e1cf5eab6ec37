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
    """``name``, ``name:tag`` or ``name@digest`` (the first digits will do)."""

    name: str
    tag: str = LATEST
    digest: str = ""

    @classmethod
    def parse(cls, text: str) -> Reference:
        """Read a reference as people write it."""
        name, at, digest = text.partition("@")
        name, colon, tag = name.partition(":")
        check_name(name)
        if at and not re.fullmatch(r"[0-9a-f]{4,64}", digest):
            raise InvalidError(
                f"{digest!r} is no digest.", "Give at least its first 4 digits."
            )
        return cls(name, check_name(tag, "tag") if colon else LATEST, digest)


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
