"""`hpcplat data import|export`: other formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from hpcplat.datasets.manifest import Manifest
from hpcplat.datasets.names import SHORT, check_name
from hpcplat.datasets.version import Split, open_version
from hpcplat.errors import ConflictError, InvalidError
from hpcplat.settings import datasets_folder
from storage.cli.options import Root, Version
from storage.exchange import arrays, importing, mds, megatron, webdataset
from storage.exchange.importing import Wanted
from storage.ingest.columns import ColumnRecipe
from storage.ingest.images import ImageRecipe
from storage.ingest.options import ColumnOptions, ImageOptions, IngestOptions, Splitting
from storage.ingest.recipe import Recipe
from storage.ingest.run import Plan, Target, run_ingest


class Format(StrEnum):
    """Formats of others."""

    MEGATRON = "megatron"
    MDS = "mds"
    WEBDATASET = "webdataset"
    NUMPY = "numpy"
    ZARR = "zarr"


def import_(  # noqa: PLR0913 (one for each option of the command)
    form: Annotated[Format, typer.Argument(metavar="FORMAT", help="Of the source.")],
    source: Annotated[
        str, typer.Argument(help="A folder or file; for megatron, without .idx.")
    ],
    name: Annotated[str, typer.Option(help="Name of the dataset.")],
    root: Root = None,
    split: Annotated[str, typer.Option(help="The split that it becomes.")] = "train",
    tokenizer: Annotated[
        str, typer.Option(help="Of tokens: `bytes`, or a tokenizer.json.")
    ] = "",
    column: Annotated[str, typer.Option(help="MDS: the column with tokens.")] = "",
    tag: Annotated[list[str] | None, typer.Option(help="Tag the version.")] = None,
) -> None:
    """Make a version from another format."""
    target = Target(root or datasets_folder(), name, tag or ())
    wanted = Wanted(check_name(split, "split"), tokenizer, column=column)
    manifest = _IMPORTERS[form](source, wanted, target)
    print(f"{name}@{manifest.digest[:SHORT]}")


def _ingested(recipe: Recipe, source: str, wanted: Wanted, target: Target) -> Manifest:
    fractions = {} if wanted.split == "train" else {wanted.split: 1.0}
    options = IngestOptions(splitting=Splitting(fractions=fractions))
    return run_ingest(Plan.of(recipe, options, [source]), target)


Importer = Callable[[str, Wanted, Target], Manifest]

_IMPORTERS: Mapping[Format, Importer] = {
    Format.MEGATRON: lambda s, w, t: importing.import_megatron(Path(s), w, t),
    Format.MDS: lambda s, w, t: importing.import_mds(Path(s), w, t),
    Format.ZARR: lambda s, w, t: importing.import_zarr(Path(s), w, t),
    Format.WEBDATASET: lambda s, w, t: _ingested(ImageRecipe(ImageOptions()), s, w, t),
    Format.NUMPY: lambda s, w, t: _ingested(ColumnRecipe(ColumnOptions()), s, w, t),
}


def export(
    version: Version,
    form: Annotated[Format, typer.Argument(metavar="FORMAT", help="To write.")],
    folder: Annotated[Path, typer.Argument(help="An empty or new folder.")],
    root: Root = None,
    split: Annotated[
        list[str] | None, typer.Option(help="Splits to export; all.")
    ] = None,
) -> None:
    """Write a version in another format, a folder for each split."""
    opened = open_version(version, root)
    if form not in _EXPORTERS or (form is Format.MEGATRON and opened.kind != "tokens"):
        raise InvalidError(
            f"{opened.kind} are not written as {form}.",
            f"Use one of: {', '.join(_EXPORTERS)}. (A version is Zarr already.)",
        )
    if folder.exists() and any(folder.iterdir()):
        raise ConflictError(f"{folder} is not empty.", "Name a new folder.")
    for name in split or opened.splits:
        target = folder / name
        target.mkdir(parents=True)
        _EXPORTERS[form](opened.split(name), target)
        print(target)


_EXPORTERS: Mapping[Format, Callable[[Split, Path], None]] = {
    Format.MEGATRON: lambda split, folder: megatron.write(split, folder / "tokens"),
    Format.MDS: mds.write,
    Format.WEBDATASET: webdataset.write,
    Format.NUMPY: arrays.write,
}
