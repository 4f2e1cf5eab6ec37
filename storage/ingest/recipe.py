"""What a kind of ingest must be able to do; text, pictures and columns each do it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from pydantic import BaseModel

from hpcplat.datasets.manifest import Kind
from storage.ingest.dealing import Dealt
from storage.ingest.options import IngestOptions, Splitting
from storage.ingest.parts import Part
from storage.ingest.sources import Piece
from storage.publishing import Draft

Task = tuple[Piece, ...]

# Raised whenever the same options would give another result than before.
REVISION = 1


class Recipe(Protocol):
    """One kind of ingest. It travels to worker processes, so it holds options only."""

    @property
    def options(self) -> BaseModel:
        """What it was asked."""
        ...

    @property
    def kind(self) -> Kind:
        """The kind of dataset that it makes."""
        ...

    def tasks(self, sources: Sequence[str]) -> list[Task]:
        """Cut the sources into tasks."""
        ...

    def make_part(self, folder: Path, task: Task, splitting: Splitting) -> None:
        """Do one task; its part appears whole or not at all."""
        ...

    def write(
        self,
        draft: Draft,
        parts: Sequence[Part],
        dealt: Dealt,
        options: IngestOptions,
    ) -> Mapping[str, Any]:
        """Write the arrays of all splits; return the version's attributes."""
        ...


def label_of(recipe: Recipe, options: IngestOptions, tasks: Sequence[Task]) -> str:
    """Return the name of the work folder: the same for the same options and sources."""
    asked = f"{REVISION}\n{options.model_dump_json()}\n{recipe.options!r}"
    pieces = "\n".join(repr(piece) for task in tasks for piece in task)
    return hashlib.sha256(f"{asked}\n{pieces}".encode()).hexdigest()[:16]
