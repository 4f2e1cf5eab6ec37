"""The manifest of a checkpoint: written last, it says what a whole one consists of."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from hpcplat.checkpoints.piece import ITEM_SIZES, Block, Piece
from hpcplat.errors import InvalidError

FORMAT = 1


class DamagedError(InvalidError):
    """A checkpoint that is not whole: which file, and what is wrong with it."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FileEntry(_Record):
    """A file of the checkpoint: size in bytes, SHA-256 in hexadecimal."""

    size: int
    sha256: str


class TensorEntry(_Record):
    """A logical tensor: its number format, shape, and digest (16 hex digits)."""

    dtype: str
    shape: tuple[int, ...]
    digest: str


class Origin(_Record):
    """Whence a checkpoint comes: what a resume compares, and lineage records.

    ``layout`` is the parallel layout as plain values; ``spec`` the SHA-256 of the job
    spec; ``code`` the commit; what is unknown is None.
    """

    world_size: int
    layout: dict[str, JsonValue] = Field(default_factory=dict)
    dataset: str | None = None
    dataset_digest: str | None = None
    spec: str | None = None
    code: str | None = None
    job: str | None = None
    attempt: int = 1


class Manifest(_Record):
    """All that makes up one checkpoint.

    ``extras`` are the values that are no tensors (schedule, loss scale, counters);
    ``metrics`` what retention may choose by.
    """

    format: Literal[1] = 1
    step: int = Field(ge=0)
    samples: int = Field(ge=0)
    created: float
    origin: Origin
    extras: dict[str, JsonValue]
    metrics: dict[str, float] = Field(default_factory=dict)
    files: dict[str, FileEntry]
    tensors: dict[str, TensorEntry]

    @property
    def nbytes(self) -> int:
        """The size of all its files."""
        return sum(entry.size for entry in self.files.values())


def to_json(manifest: Manifest) -> str:
    """Return the manifest with a SHA-256 of itself: it is the root of all others."""
    body = manifest.model_dump(mode="json")
    return json.dumps({"manifest": body, "sha256": _hash(body)}, indent=1) + "\n"


def from_json(text: str | bytes) -> Manifest:
    """Return the manifest that stands in ``text``; DamagedError if it is not whole."""
    try:
        found = json.loads(text)
        body, written = found["manifest"], found["sha256"]
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedError("the manifest is no whole JSON document") from error
    if _hash(body) != written:
        raise DamagedError("the manifest's own SHA-256 does not fit")
    try:
        return Manifest.model_validate(body)
    except ValidationError as error:
        told = f"format {body.get('format')!r}: {error.errors()[0]['msg']}"
        raise DamagedError(
            f"the manifest is of another release ({told})",
            "Use the release of hpcplat that wrote it.",
        ) from error


def _hash(body: Mapping[str, Any]) -> str:
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


class StoredPiece(_Record):
    """A piece in a rank's file: where it begins there (bytes), and its digest part."""

    key: str
    dtype: str
    global_shape: tuple[int, ...]
    offset: tuple[int, ...]
    shape: tuple[int, ...]
    start: int
    end: int
    position: int
    digest: str

    @property
    def piece(self) -> Piece:
        """The piece itself."""
        block = Block(self.offset, self.shape)
        return Piece(
            self.key, self.dtype, self.global_shape, block, self.start, self.end
        )


class Index(_Record):
    """What a rank's file of pieces holds, and the hash of that file."""

    file: str
    size: int
    sha256: str
    pieces: tuple[StoredPiece, ...]


def tensors_of(indexes: list[Index]) -> dict[str, TensorEntry]:
    """Add the pieces' digests up to those of the logical tensors; all must be whole.

    Raises DamagedError when pieces of a tensor disagree or do not add up to it.
    """
    found: dict[str, list[StoredPiece]] = {}
    for index in indexes:
        for piece in index.pieces:
            found.setdefault(piece.key, []).append(piece)
    return {key: _tensor(key, pieces) for key, pieces in sorted(found.items())}


def _tensor(key: str, pieces: list[StoredPiece]) -> TensorEntry:
    first = pieces[0]
    kinds = {(one.dtype, one.global_shape) for one in pieces}
    if len(kinds) > 1 or first.dtype not in ITEM_SIZES:
        raise DamagedError(f"ranks disagree on the format of {key}: {sorted(kinds)}")
    held = sum(one.end - one.start for one in pieces)
    size = 1
    for length in first.global_shape:
        size *= length
    if held != size:
        raise DamagedError(f"{key} has {size} elements, the ranks wrote {held}")
    total = sum(int(one.digest, 16) for one in pieces) % (1 << 64)
    return TensorEntry(
        dtype=first.dtype, shape=first.global_shape, digest=f"{total:016x}"
    )
