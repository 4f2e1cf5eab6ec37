from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from hpcplat.datasets.version import DatasetVersion
from storage.ingest.options import IngestOptions, TextOptions
from storage.ingest.recipe import Recipe
from storage.ingest.run import Plan, Target, run_ingest
from storage.ingest.tokens import TextRecipe, checked

Ingest = Callable[..., DatasetVersion]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "datasets"


@pytest.fixture
def ingest(root: Path) -> Ingest:
    """Ingest sources by a recipe and open what came of it."""

    def run(
        recipe: Recipe,
        sources: Sequence[Path | str],
        options: IngestOptions | None = None,
        name: str = "made",
        processes: int = 1,
        append: bool = False,
    ) -> DatasetVersion:
        plan = Plan.of(recipe, options or IngestOptions(), [str(s) for s in sources])
        target = Target(root, name, append=append)
        manifest = run_ingest(plan, target, processes=processes)
        return DatasetVersion(root / name / "versions" / manifest.digest)

    return run


@pytest.fixture
def ingest_text(ingest: Ingest) -> Ingest:
    """Ingest text with these options of TextOptions."""

    def run(sources: Sequence[Path | str], **given: object) -> DatasetVersion:
        rest = {
            key: given.pop(key)
            for key in ("options", "name", "processes", "append")
            if key in given
        }
        recipe = TextRecipe(checked(TextOptions.model_validate(given)))
        return ingest(recipe, sources, **rest)

    return run


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Write 2,000 records of text, some of them twice, with fields beside it."""
    path = tmp_path / "corpus.jsonl"
    with path.open("w") as file:
        for number in range(2000):
            record = {
                "text": f"Text {number % 1900} " + "äöü€𝄞 word " * (number % 7),
                "book": f"book {number % 5}",
                "score": number / 2000,
            }
            file.write(json.dumps(record, ensure_ascii=number % 2 == 0) + "\n")
    return path
