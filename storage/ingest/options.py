"""What a text ingest was asked to do; equal options and sources give equal versions."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from hpcplat.datasets.tokenizer import BYTES
from storage.ingest.sources import Piece

# Raised whenever the same options would give another result than before.
REVISION = 1


class Splitting(BaseModel):
    """How samples are dealt out: fractions by name; the rest is ``train``.

    ``key`` names a field: samples with the same value stay together. ``strata`` names
    a field whose values are all divided alike. ``seed`` deals otherwise.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    fractions: Mapping[str, float] = Field(default_factory=dict)
    key: str = ""
    strata: str = ""
    seed: int = 0


class TextOptions(BaseModel):
    """How text becomes tokens.

    ``field`` is the column of jsonl and parquet that holds the text; ``per`` says
    what a document of a plain file is. Lengths are in characters. ``tokenizer`` is
    ``bytes`` or the path of a tokenizer file; ``tokenizer_hash`` its content's.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    field: str = "text"
    per: Literal["file", "line"] = "file"
    tokenizer: str = BYTES
    tokenizer_hash: str = ""
    end_token: str = ""
    shortest: int = Field(default=1, ge=0)
    longest: int = Field(default=0, ge=0)
    deduplicate: bool = False
    where: str = ""
    broken_text: Literal["fail", "replace"] = "fail"
    splitting: Splitting = Splitting()
    compressor: Literal["none", "blosc", "zstd"] = "none"


def label_of(options: BaseModel, pieces: list[Piece]) -> str:
    """Return the name of the work folder: the same for the same options and sources."""
    text = f"{REVISION}\n{options.model_dump_json()}\n" + "\n".join(map(repr, pieces))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
