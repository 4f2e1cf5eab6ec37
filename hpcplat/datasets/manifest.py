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

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

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

    _digest: str = PrivateAttr("")

    @property
    def digest(self) -> str:
        """The version's name: 64 hexadecimal digits."""
        if not self._digest:
            content = self.content.model_dump(mode="json")
            self._digest = _sha256(_canonical(content))
        return self._digest

    def to_json(self) -> str:
        """Return the exact text of the file: canonical JSON, sealed by a hash."""
        body = self.model_dump(mode="json")
        # In this order, so that readers can hash what they read as it stands.
        body = {"content": body.pop("content"), "digest": self.digest, **body}
        text = _canonical(body)[:-1]
        return f'{text}{_SEAL}{_sha256(text)}"}}\n'


_BEGINNING = '{"content":'
_SEAL = ',"sha256":"'
_SEAL_LENGTH = len(_SEAL) + 64 + len('"}\n')


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _canonical(value: Any) -> str:  # noqa: ANN401 (any JSON value)
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def read_manifest(folder: Path) -> Manifest:
    """Read and check the manifest of a version's folder.

    Raises DamagedError when it is missing or not byte for byte what was written.
    """
    path = folder / FILE_NAME
    try:
        text = path.read_bytes().decode()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DamagedError.of(path, "is missing") from error
    except UnicodeDecodeError as error:
        raise DamagedError.of(path, "is not what was written") from error
    body, seal = text[:-_SEAL_LENGTH], text[-_SEAL_LENGTH:]
    if seal != f'{_SEAL}{_sha256(body)}"}}\n' or not body.startswith(_BEGINNING):
        raise DamagedError.of(path, "is not what was written")
    try:
        return _parsed(body)
    except (ValueError, KeyError, ValidationError) as error:
        raise DamagedError.of(path, f"cannot be read ({error})") from error


def _parsed(text: str) -> Manifest:
    start = len(_BEGINNING)
    content, end = json.JSONDecoder().raw_decode(text, start)
    rest = json.loads("{" + text[end + 1 :] + "}")
    digest = rest.pop("digest")
    if digest != _sha256(text[start:end]):
        raise ValueError("its digest is not that of its content")
    manifest = Manifest.model_validate({"content": content, **rest})
    manifest._digest = digest
    return manifest
