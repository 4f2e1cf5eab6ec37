"""Ingest beside tokenizing alone, verify beside hashing alone."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import tokenizers

from hpcplat.datasets.store import Store
from hpcplat.datasets.tokenizer import FileTokenizer
from storage.ingest.options import IngestOptions, TextOptions
from storage.ingest.run import Plan, Target, run_ingest
from storage.ingest.tokens import TextRecipe, checked
from storage.publishing import Draft, changing
from storage.verifying import verify
from tests.benchmarks.data import files
from tests.benchmarks.data.side_by_side import Work, side_by_side, table

DOCUMENTS = 12_000


def report(folder: Path) -> str:
    """Measure both and return the tables."""
    # One core for all ways: the library's own threads would blur what is compared.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    return "\n".join([_ingest(folder), _verify(folder)])


def _texts() -> list[str]:
    """Return Python's own library, cut into documents of some KB."""
    library = Path(os.__file__).parent
    whole = "".join(
        path.read_text(errors="replace") for path in sorted(library.glob("*.py"))
    )
    size = 1000
    return [whole[start : start + size] for start in range(0, len(whole), size)]


def _tokenizer(folder: Path, texts: list[str]) -> Path:
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(
        add_prefix_space=False
    )
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=8000,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    path = folder / "tokenizer.json"
    tokenizer.save(str(path))
    return path


def _ingest(folder: Path) -> str:
    texts = _texts()[:DOCUMENTS]
    path = _tokenizer(folder, texts)
    source = folder / "corpus.jsonl"
    source.write_text("\n".join(json.dumps({"text": text}) for text in texts))
    size = sum(len(text.encode()) for text in texts) / 1e6
    root = folder / "root"

    def alone(_: int) -> None:
        ids, _lengths = FileTokenizer(path).encode(texts)
        ids.tofile(folder / "ids")

    def ingest(_: int) -> None:
        shutil.rmtree(root, ignore_errors=True)
        recipe = TextRecipe(checked(TextOptions(tokenizer=str(path))))
        plan = Plan.of(recipe, IngestOptions(), [str(source)])
        run_ingest(plan, Target(root, "made"))

    ways: dict[str, Work] = {
        "tokenizing all texts at once, writing the ids": alone,
        "hpcplat data ingest, jsonl to a published version": ingest,
    }
    found = side_by_side(ways, 7)
    return table("Ingest of text with a BPE tokenizer, one process", "MB", size, found)


def _verify(folder: Path) -> str:
    values = files.tokens()
    root = folder / "verified"
    with changing(root, "made") as paths, Draft(paths, "d", "columns") as draft:
        writer = draft.array("train", "x", values.dtype)
        writer.append(values)
        draft.set_samples("train", len(values))
        draft.publish({"categories": {}}, {})
    version = Store(root).folder("made")
    names = [path for path in version.rglob("*") if path.is_file()]

    def hashing(_: int) -> None:
        for path in names:
            with path.open("rb") as file:
                hashlib.file_digest(file, "sha256")

    ways: dict[str, Work] = {
        "hashlib.file_digest of every file": hashing,
        "hpcplat data verify, one thread": lambda _: verify(version, 1),
    }
    found = side_by_side(ways, 9)
    return table("Verify", "MB", len(values) * 2 / 1e6, found)
