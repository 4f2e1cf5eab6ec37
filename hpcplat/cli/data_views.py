"""The reading half of `hpcplat data`: ls, show, head, diff."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from hpcplat import files
from hpcplat.cli.tables import Column, printable, shown, wants_colour, width_of_terminal
from hpcplat.datasets import contact_sheet, png
from hpcplat.datasets.cursor import Cursor
from hpcplat.datasets.difference import differences
from hpcplat.datasets.manifest import Manifest, read_manifest
from hpcplat.datasets.names import SHORT
from hpcplat.datasets.store import Store, locate
from hpcplat.datasets.tokenizer import tokenizer_of
from hpcplat.datasets.version import Split, open_version
from hpcplat.errors import InvalidError

app = typer.Typer()

Root = Annotated[
    Path | None, typer.Option(help="Folder of all datasets; your own if not given.")
]
Version = Annotated[
    str, typer.Argument(metavar="NAME[@VERSION]", help="A dataset; tag or digest.")
]
SplitName = Annotated[str, typer.Option(help="The split to look at; the first.")]
Count = Annotated[int, typer.Option("--count", "-n", min=1, help="How many.")]

_LONGEST = 2000  # characters of a document that are shown

_COLUMNS = [
    Column("DATASET", lambda row: row["name"]),
    Column("VERSION", lambda row: row["digest"]),
    Column("TAGS", lambda row: row["tags"], rank=1, shrinks=True),
    Column("KIND", lambda row: row["kind"], rank=2),
    Column("SAMPLES", lambda row: f"{row['samples']:,}", right=True),
    Column("SIZE", lambda row: _size(row["bytes"]), right=True),
    Column("MADE", lambda row: row["made"], rank=3),
]


@app.command()
def ls(
    name: Annotated[str, typer.Argument(help="All versions of this one.")] = "",
    root: Root = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """List datasets, or the versions of one."""
    store = Store(root)
    rows = list(_rows(store, [name] if name else store.names(), every=bool(name)))
    if as_json:
        print(json.dumps(rows, indent=1))
    elif rows:
        print(shown(rows, _COLUMNS))
    else:
        print(f"No dataset under {store.root}.")


def _rows(
    store: Store, names: Iterable[str], *, every: bool
) -> Iterator[dict[str, Any]]:
    for name in names:
        tags = store.tags(name)
        versions = store.versions(name)
        for digest in versions if every else versions[-1:]:
            manifest = read_manifest(store.folder(f"{name}@{digest}"))
            mine = sorted(tag for tag, found in tags.items() if found == digest)
            yield {"name": name, "tags": ", ".join(mine), **_row(manifest)}


def _row(manifest: Manifest) -> dict[str, Any]:
    content = manifest.content
    return {
        "digest": manifest.digest[:SHORT],
        "kind": content.kind,
        "samples": sum(split.samples for split in content.splits.values()),
        "bytes": sum(entry.size for entry in content.files.values()),
        "made": str(manifest.provenance.get("made", ""))[:16].replace("T", " "),
    }


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} TiB"


@app.command()
def show(  # noqa: PLR0913 (one for each option of the command)
    version: Version,
    root: Root = None,
    split: SplitName = "",
    count: Count = 32,
    out: Annotated[
        Path | None, typer.Option(help="Write the pictures to this PNG file.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Other samples.")] = 0,
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="The whole manifest, for programs.")
    ] = False,
) -> None:
    """Show what a version holds: its numbers, its origin, and some samples."""
    opened = open_version(version, root)
    if as_json:
        body = opened.manifest.model_dump(mode="json")
        print(json.dumps({"digest": opened.digest, **body}, indent=1))
        return
    chosen = opened.split(split or opened.splits[0])
    for line in _about(opened.manifest):
        print(printable(line))
    print()
    numbers = Cursor(max(chosen.samples, 1), seed).take(min(count, chosen.samples))
    if opened.kind == "images":
        _show_images(chosen, numbers, out)
    else:
        few = numbers[:4] if opened.kind == "tokens" else numbers[:10]
        _print_samples(chosen, np.sort(few))


def _about(manifest: Manifest) -> Iterator[str]:
    content, origin = manifest.content, manifest.provenance
    yield f"version    {manifest.digest}"
    yield f"kind       {content.kind}"
    if manifest.parent:
        yield f"added to   {manifest.parent[:SHORT]}"
    for name, split in content.splits.items():
        arrays = (f"{a} {s.dtype} {list(s.shape)}" for a, s in split.arrays.items())
        yield f"{name:<10} {split.samples:,} samples: {'; '.join(arrays)}"
    for name, value in content.attributes.items():
        text = str(value)
        yield f"{name:<18} {text if len(text) < 70 else text[:67] + '…'}"
    sources = origin.get("sources", [])
    for source in sources[:3]:
        yield f"source     {source['path']}"
    more = origin.get("source_count", len(sources)) - 3
    if more > 0:
        yield f"           and {more:,} more"
    for what, number in origin.get("counts", {}).items():
        yield f"{what:<18} {number:,}"


def _show_images(split: Split, numbers: np.ndarray, out: Path | None) -> None:
    images = split["images"].take(np.sort(numbers))
    if images.shape[3] not in (1, 3):
        raise InvalidError(
            f"Images of {images.shape[3]} channels cannot be drawn.",
            "Read them with hpcplat.datasets.ImageRows.",
        )
    whole = contact_sheet.sheet(images, columns=min(8, len(images)))
    if out is not None:
        files.write_whole(out, png.encoded(whole))
        print(f"{len(images)} images of {split.name} in {out}")
    elif wants_colour():
        small = contact_sheet.shrunk(whole, width_of_terminal())
        print("\n".join(contact_sheet.terminal_lines(small)))
    else:
        print("The pictures need a terminal with colours, or --out FILE.png.")


@app.command()
def head(
    version: Version, root: Root = None, split: SplitName = "", count: Count = 5
) -> None:
    """Print the first samples: decoded text, labels, or the values of columns."""
    opened = open_version(version, root)
    chosen = opened.split(split or opened.splits[0])
    _print_samples(chosen, np.arange(min(count, chosen.samples)))


def _print_samples(split: Split, numbers: np.ndarray) -> None:
    printers = {"tokens": _documents, "images": _labels, "columns": _values}
    for line in printers[split.version.kind](split, numbers):
        print(line)


def _documents(split: Split, numbers: np.ndarray) -> Iterator[str]:
    name = split.attributes["tokenizer"]
    tokenizer = tokenizer_of(split.version.folder, split.attributes) if name else None
    offsets = split["documents"]
    for number in numbers.tolist():
        start, stop = offsets.slice(number, number + 2).tolist()
        ids = split["tokens"].slice(start, stop)
        yield f"--- document {number}, {stop - start:,} tokens"
        if tokenizer is None:
            yield " ".join(map(str, ids[:100].tolist()))
            continue
        text = tokenizer.decode(ids[:_LONGEST])[:_LONGEST]
        yield "\n".join(printable(line) for line in text.splitlines())


def _labels(split: Split, numbers: np.ndarray) -> Iterator[str]:
    names = split.attributes["class_names"]
    codes = split["labels"].take(numbers).tolist()
    shape = list(split["images"].shape[1:])
    for number, code in zip(numbers.tolist(), codes, strict=True):
        label = names[code] if code < len(names) else code
        yield f"{number}\t{shape}\t{printable(str(label))}"


def _values(split: Split, numbers: np.ndarray) -> Iterator[str]:
    words: Mapping[str, list[str]] = split.attributes.get("categories", {})
    columns = {name: split[name].take(numbers) for name in split.names}
    yield "\t".join(["row", *columns])
    for place, number in enumerate(numbers.tolist()):
        cells = [_cell(values[place], words.get(n)) for n, values in columns.items()]
        yield "\t".join([str(number), *cells])


def _cell(value: Any, words: list[str] | None) -> str:  # noqa: ANN401 (a scalar or row)
    if words is not None:
        return printable(words[int(value)])
    if np.ndim(value) == 0:
        return f"{value:g}" if np.asarray(value).dtype.kind == "f" else str(value)
    return np.array2string(np.ravel(value), threshold=6, edgeitems=2, separator=" ")


@app.command()
def diff(
    first: Annotated[str, typer.Argument(help="NAME[@VERSION] or a folder.")],
    second: Annotated[str, typer.Argument(help="Another.")],
    root: Root = None,
) -> None:
    """Say what differs between two versions; exit code 1 if something does."""
    old, new = (read_manifest(locate(name, root)) for name in (first, second))
    found = list(differences(old, new))
    for line in found:
        print(printable(line))
    if found:
        raise typer.Exit(1)
    print("The same version.")
