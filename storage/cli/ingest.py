"""`hpcplat data ingest`."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from hpcplat.allocation import rank_placement
from hpcplat.cli.submit import in_folder, send
from hpcplat.datasets.manifest import Manifest
from hpcplat.datasets.names import SHORT
from hpcplat.errors import InvalidError
from hpcplat.jobs import spec_of
from hpcplat.settings import datasets_folder
from storage.cli.options import Root
from storage.cli.progress import shown
from storage.ingest.columns import ColumnRecipe
from storage.ingest.images import ImageRecipe
from storage.ingest.options import (
    ColumnOptions,
    Compressor,
    ImageOptions,
    IngestOptions,
    Splitting,
    TextOptions,
)
from storage.ingest.recipe import Recipe
from storage.ingest.run import Plan, Share, Target, ingest_share, run_ingest
from storage.ingest.splits import parse_splits
from storage.ingest.tokens import TextRecipe, checked

Sources = list[str] | None
Asked = Mapping[str, Any]
_CPUS = os.cpu_count() or 1


def ingest(  # noqa: PLR0913 (one for each option of the command)
    context: typer.Context,
    name: Annotated[str, typer.Option(help="Name of the dataset.")],
    more: Annotated[
        Sources, typer.Argument(metavar="SOURCE", help="More sources.")
    ] = None,
    text: Annotated[
        Sources,
        typer.Option(help="Text: txt, jsonl, parquet (.gz, .zst); file, folder, URL."),
    ] = None,
    images: Annotated[
        Sources, typer.Option(help="Pictures: a folder per class, tar, zip.")
    ] = None,
    table: Annotated[
        Sources, typer.Option(help="Columns: parquet, arrow, csv, npy, npz.")
    ] = None,
    sql: Annotated[
        Sources, typer.Option(help="A database: sqlite:///file, postgresql://…")
    ] = None,
    query: Annotated[str, typer.Option(help="What to select from it.")] = "",
    root: Root = None,
    split: Annotated[
        Sources, typer.Option(help="validation=0.05; the rest is train.")
    ] = None,
    split_by: Annotated[
        str, typer.Option(help="Field whose equal values stay together.")
    ] = "",
    stratify: Annotated[
        str, typer.Option(help="Field whose values all are divided alike.")
    ] = "",
    seed: Annotated[int, typer.Option(help="Deal the splits otherwise.")] = 0,
    where: Annotated[
        str, typer.Option(help="Keep what this is true of: length > 200.")
    ] = "",
    deduplicate: Annotated[
        bool, typer.Option("--deduplicate", help="Leave repeats out.")
    ] = False,
    broken: Annotated[
        Literal["fail", "replace", "skip"],
        typer.Option(help="Broken text: fail, replace; broken pictures: fail, skip."),
    ] = "fail",
    field: Annotated[str, typer.Option(help="Field that holds the text.")] = "text",
    per: Annotated[
        Literal["file", "line"], typer.Option(help="A document of a plain file.")
    ] = "file",
    tokenizer: Annotated[
        str, typer.Option(help="`bytes`, or the path of a tokenizer.json.")
    ] = "bytes",
    end_token: Annotated[str, typer.Option(help="Token that closes a document.")] = "",
    shortest: Annotated[int, typer.Option(min=0, help="Characters at least.")] = 1,
    longest: Annotated[int, typer.Option(min=0, help="Characters at most.")] = 0,
    size: Annotated[str, typer.Option(help="Pictures become HEIGHTxWIDTH.")] = "",
    fit: Annotated[
        Literal["crop", "pad", "stretch"], typer.Option(help="How they are fitted.")
    ] = "crop",
    grey: Annotated[bool, typer.Option("--grey", help="One channel, not 3.")] = False,
    column: Annotated[Sources, typer.Option(help="Columns to keep; all.")] = None,
    compressor: Annotated[
        Compressor, typer.Option(help="Of chunks; none reads at memory speed.")
    ] = "none",
    shard_mib: Annotated[int, typer.Option(min=1, max=4096)] = 128,
    append: Annotated[
        bool, typer.Option("--append", help="Add to the latest version.")
    ] = False,
    tag: Annotated[Sources, typer.Option(help="Tag the version.")] = None,
    processes: Annotated[int, typer.Option(min=1, show_default="one a core")] = _CPUS,
    nodes: Annotated[int, typer.Option(min=0, help="As a job on so many nodes.")] = 0,
    partition: Annotated[str, typer.Option(help="Of the job.")] = "",
    as_rank: Annotated[bool, typer.Option("--as-rank", hidden=True)] = False,
) -> None:
    """Make a version of a dataset from sources.

    A run that was killed goes on where it stopped when it is started again.

    Example: hpcplat data ingest --name kjv --text kjv.jsonl --split validation=0.05
    """
    target = Target(root or datasets_folder(), name, tag or (), append=append)
    if nodes:
        raise typer.Exit(_submit(context, target.root))
    plan = _plan(context.params)
    with shown(name) as progress:
        if as_rank:
            rank = rank_placement()
            share = Share(rank.rank, rank.world_size)
            manifest = ingest_share(plan, target, share, processes, progress)
        else:
            manifest = run_ingest(plan, target, processes=processes, progress=progress)
    if manifest is not None:
        _say(name, manifest)


def _plan(asked: Asked) -> Plan:
    given = {kind: asked[kind] for kind in _RECIPES if asked[kind]}
    if len(given) != 1:
        names = ", ".join(f"--{kind}" for kind in _RECIPES)
        raise InvalidError(
            "What kind of sources there are is not clear.", f"Use one of {names}."
        )
    ((kind, sources),) = given.items()
    splitting = Splitting(
        fractions=parse_splits(asked["split"] or []),
        key=asked["split_by"],
        strata=asked["stratify"],
        seed=asked["seed"],
    )
    options = IngestOptions(
        splitting=splitting,
        deduplicate=asked["deduplicate"],
        compressor=asked["compressor"],
        shard_mib=asked["shard_mib"],
    )
    return Plan.of(_RECIPES[kind](asked), options, [*sources, *(asked["more"] or [])])


def _text(asked: Asked) -> Recipe:
    names = ("field", "per", "tokenizer", "end_token", "shortest", "longest", "where")
    options = {name: asked[name] for name in names}
    return TextRecipe(checked(TextOptions(broken=_policy(asked, "replace"), **options)))


def _images(asked: Asked) -> Recipe:
    return ImageRecipe(
        ImageOptions(
            size=_size(asked["size"]),
            fit=asked["fit"],
            channels=1 if asked["grey"] else 3,
            where=asked["where"],
            broken=_policy(asked, "skip"),
        )
    )


def _columns(asked: Asked) -> Recipe:
    if asked["sql"] and not asked["query"]:
        raise InvalidError(
            "A database needs a query.", "Say what to select, as --query 'SELECT * …'."
        )
    return ColumnRecipe(
        ColumnOptions(
            columns=tuple(asked["column"] or ()),
            where=asked["where"],
            query=asked["query"],
        )
    )


_RECIPES: Mapping[str, Callable[[Asked], Recipe]] = {
    "text": _text,
    "images": _images,
    "table": _columns,
    "sql": _columns,
}


def _policy(asked: Asked, other: str) -> Any:  # noqa: ANN401 (one of two words)
    if asked["broken"] not in ("fail", other):
        raise InvalidError(
            f"--broken {asked['broken']} is for another kind of source.",
            f"Use fail or {other}.",
        )
    return asked["broken"]


def _size(text: str) -> tuple[int, int] | None:
    if not text:
        return None
    match = re.fullmatch(r"([1-9][0-9]{0,4})x([1-9][0-9]{0,4})", text)
    if match is None:
        raise InvalidError(f"{text!r} is no size.", "Write HEIGHTxWIDTH, as 224x224.")
    return int(match[1]), int(match[2])


def _submit(context: typer.Context, root: Path) -> int:
    """Run this command as a job, each rank doing its share."""
    asked = context.params
    words = ["data", "ingest", *_words(context), "--as-rank", "--root", str(root)]
    resources: dict[str, Any] = {"nodes": asked["nodes"], "tasks_per_node": 1}
    if asked["partition"]:
        resources["partition"] = asked["partition"]
    spec = spec_of(
        {
            "name": f"ingest-{asked['name']}",
            "resources": resources,
            "command": [sys.executable, "-I", "-m", "hpcplat.cli.main", *words],
            # Parts that are done stay done, so it may run again after a node failed.
            "recovery": {"requeue": True},
        }
    )
    here = in_folder(spec, Path.cwd())
    return send(here, dry_run=False, watch=False, as_json=False)


def _words(context: typer.Context) -> Iterator[str]:
    """Yield the command line again, without what is about the job itself."""
    arguments: list[str] = []
    for parameter in context.command.params:
        name, value = str(parameter.name), context.params.get(str(parameter.name))
        if not value or name in ("nodes", "partition", "root", "as_rank"):
            continue
        values = value if isinstance(value, list | tuple) else [value]
        if not parameter.opts[0].startswith("-"):
            arguments += [str(one) for one in values]
        elif value is True:
            yield parameter.opts[0]
        else:
            for one in values:
                yield from (parameter.opts[0], str(one))
    yield from arguments


def _say(name: str, manifest: Manifest) -> None:
    counts: Mapping[str, int] = manifest.provenance["counts"]
    for what, count in counts.items():
        print(f"{what:<24}{count:>14,}")
    for split, schema in manifest.content.splits.items():
        print(f"{split:<24}{schema.samples:>14,}")
    print(f"{name}@{manifest.digest[:SHORT]}")
