"""``manifest.json``: what a dataset version holds, where from, and each file's hash.

The version's name is the SHA-256 of the ``content`` part in canonical JSON, so equal
content has one name wherever and whenever it was made.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hpcplat.datasets.damage import DamagedError

FORMAT = 1
FILE_NAME = "manifest.json"

Kind = Literal["tokens", "images", "columns"]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FileEntry(_Record):
    """A file of the version: size in bytes and SHA-256 in hexadecimal."""

    size: int = Field(ge=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class ArraySchema(_Record):
    """Type and shape of an array; ``zarr.json`` beside it has the layout."""

    dtype: str
    shape: tuple[int, ...]


class SplitSchema(_Record):
    """A split's arrays by name, and how many documents, images or rows it holds."""

    samples: int = Field(ge=0)
    arrays: Mapping[str, ArraySchema]


class Content(_Record):
    """Everything that the digest covers."""

    format: int = FORMAT
    kind: Kind
    attributes: Mapping[str, Any]
    splits: Mapping[str, SplitSchema]
    files: Mapping[str, FileEntry]


class Manifest(_Record):
    """A version's manifest. ``provenance`` says how it came to be."""

    content: Content
    provenance: Mapping[str, Any]
    parent: str | None = None

    @property
    def digest(self) -> str:
        """The version's name: 64 hexadecimal digits."""
        return digest_of(self.content)

    def to_json(self) -> str:
        """Return the exact text of the file, its own checksum included."""
        body = self.model_dump(mode="json")
        body["digest"] = self.digest
        body["sha256"] = hashlib.sha256(_canonical(body)).hexdigest()
        return _text(body)


def digest_of(content: Content) -> str:
    """Return the digest that names this content."""
    return hashlib.sha256(_canonical(content.model_dump(mode="json"))).hexdigest()


def _canonical(value: Any) -> bytes:  # noqa: ANN401 (any JSON value)
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False
    ).encode()


def _text(body: Mapping[str, Any]) -> str:
    return json.dumps(body, sort_keys=True, indent=1, ensure_ascii=False) + "\n"


def read_manifest(folder: Path) -> Manifest:
    """Read and check the manifest of a version's folder.

    Raises DamagedError when it is missing or not byte for byte what was written.
    """
    path = folder / FILE_NAME
    try:
        raw = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DamagedError.of(path, "is missing") from error
    try:
        body = json.loads(raw)
        stored = {key: body.pop(key) for key in ("digest", "sha256")}
        manifest = Manifest.model_validate(body)
    except (ValueError, KeyError, AttributeError, ValidationError) as error:
        raise DamagedError.of(path, "cannot be read") from error
    if stored["digest"] != manifest.digest or manifest.to_json().encode() != raw:
        raise DamagedError.of(path, "is not what was written")
    return manifest
