"""The writing half of `hpcplat data`: ingest, and what changes a store."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from hpcplat.datasets.store import default_root
from hpcplat.errors import InvalidError
from storage.ingest.options import IngestOptions, Splitting, TextOptions
from storage.ingest.run import Plan, Target
from storage.ingest.run import ingest as run_ingest
from storage.ingest.splits import parse_splits
from storage.ingest.tokens import TextRecipe, checked

app = typer.Typer(no_args_is_help=True)

Root = Annotated[Path | None, typer.Option("--root", help="Folder of all datasets.")]


@app.command()
def ingest(  # noqa: PLR0913 (one for each option of the command)
    name: Annotated[str, typer.Option(help="Name of the dataset.")],
    sources: Annotated[list[str] | None, typer.Argument(help="More sources.")] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(
            help="Text: txt, jsonl, parquet (also .gz, .zst); file or folder."
        ),
    ] = None,
    root: Root = None,
    split: Annotated[
        list[str] | None, typer.Option(help="validation=0.05; the rest is train.")
    ] = None,
    field: Annotated[str, typer.Option(help="Column that holds the text.")] = "text",
    per: Annotated[
        Literal["file", "line"], typer.Option(help="A document of a plain file.")
    ] = "file",
    tokenizer: Annotated[
        str, typer.Option(help="`bytes`, or a tokenizer.json.")
    ] = "bytes",
    deduplicate: Annotated[bool, typer.Option(help="Leave repeats out.")] = False,
    tag: Annotated[list[str] | None, typer.Option(help="Tag the version.")] = None,
    processes: Annotated[int, typer.Option(min=1)] = os.cpu_count() or 1,
) -> None:
    """Make a version of a dataset from sources."""
    found = [*(text or []), *(sources or [])]
    if not found:
        raise InvalidError("There is no source.", "Name one, as --text corpus.jsonl.")
    options = TextOptions(
        field=field,
        per=per,
        tokenizer=tokenizer,
    )
    asked = IngestOptions(
        deduplicate=deduplicate,
        splitting=Splitting(fractions=parse_splits(split or [])),
    )
    target = Target(root or default_root(), name, tag or ())
    plan = Plan.of(TextRecipe(checked(options)), asked, found)
    manifest = run_ingest(plan, target, processes=processes)
    print(f"{name}@{manifest.digest[:12]}")
