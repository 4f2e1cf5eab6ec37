"""What an ingest was asked to do; equal options and sources give equal versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from hpcplat.datasets.tokenizer import BYTES

Compressor = Literal["none", "blosc", "zstd"]


class _Options(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Splitting(_Options):
    """How samples are dealt out: fractions by name; the rest is ``train``.

    ``key`` names a field: samples with the same value stay together. ``strata`` names
    a field whose values are all divided alike. ``seed`` deals otherwise.
    """

    fractions: Mapping[str, float] = Field(default_factory=dict)
    key: str = ""
    strata: str = ""
    seed: int = 0


class TextOptions(_Options):
    """How text becomes tokens.

    ``field`` is the column of jsonl and parquet that holds the text; ``per`` says
    what a document of a plain file is. Lengths are in characters (0: no limit).
    ``where`` keeps what it is true of. ``tokenizer`` is ``bytes`` or the path of a
    tokenizer file, ``tokenizer_hash`` its content's.
    """

    field: str = "text"
    per: Literal["file", "line"] = "file"
    tokenizer: str = BYTES
    tokenizer_hash: str = ""
    end_token: str = ""
    shortest: int = Field(default=1, ge=0)
    longest: int = Field(default=0, ge=0)
    where: str = ""
    broken: Literal["fail", "replace"] = "fail"


class ImageOptions(_Options):
    """How pictures become arrays of bytes.

    ``size`` is (height, width); None keeps sizes, which must then be equal.
    ``where`` may ask for ``path``, ``label``, ``height``, ``width``.
    """

    size: tuple[int, int] | None = None
    fit: Literal["crop", "pad", "stretch"] = "crop"
    channels: Literal[1, 3] = 3
    where: str = ""
    broken: Literal["fail", "skip"] = "fail"


class ColumnOptions(_Options):
    """How rows of tables and arrays become columns.

    ``columns`` are those that are kept (none: all). ``query`` and ``number`` are for
    databases: what to select, and rows that are read at a time.
    """

    columns: tuple[str, ...] = ()
    where: str = ""
    query: str = ""
    number: int = Field(default=100_000, ge=1)


class IngestOptions(_Options):
    """What every kind of ingest is asked."""

    splitting: Splitting = Splitting()
    deduplicate: bool = False
    compressor: Compressor = "none"
    shard_mib: int = Field(default=128, ge=1, le=4096)
