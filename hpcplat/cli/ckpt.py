"""`hpcplat ckpt`: checkpoints of a run: list, show, verify, prune, export."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from hpcplat.checkpoints.folder import (
    PREFIX,
    Checkpoint,
    Rejected,
    Retention,
    discard,
    listing,
    newest_whole,
    open_checkpoint,
    superfluous,
    verify,
)
from hpcplat.checkpoints.manifest import DamagedError
from hpcplat.cli.runs_found import found_run
from hpcplat.cli.session import AsJson, print_json
from hpcplat.cli.tables import Column, shown
from hpcplat.errors import ConflictError, NotFoundError, UnavailableError
from hpcplat.jobs import read_spec
from hpcplat.quantities import counted, spoken_size
from hpcplat.runfolder import RunFolder

app = typer.Typer(no_args_is_help=True)

Place = Annotated[
    str,
    typer.Argument(
        metavar="JOB|FOLDER", help="A job, a run folder, or a folder of checkpoints."
    ),
]
Step = Annotated[
    int | None, typer.Option(help="Which checkpoint; the newest whole one if left out.")
]


@app.callback()
def _ckpt() -> None:
    """Checkpoints: whole or not at all, hashed, free of the layout that wrote them."""


@app.command("ls")
def ls(place: Place, *, as_json: AsJson = False) -> None:
    """List the checkpoints of a run, newest first; what is none, with the reason.

    Example: hpcplat ckpt ls my-training
    """
    good, bad = listing(folder_of(place))
    rows = [*map(_row, good), *map(_bad_row, bad)]
    if as_json:
        print_json({"checkpoints": rows})
    elif rows:
        print(shown(rows, COLUMNS))


@app.command()
def show(place: Place, step: Step = None, *, as_json: AsJson = False) -> None:
    """Show whence a checkpoint comes, and its tensors with their digests."""
    found = chosen(folder_of(place), step)
    if as_json:
        print_json(found.manifest.model_dump(mode="json"))
        return
    print(_described(found))
    entries = found.manifest.tensors.items()
    rows = [{"key": key, **entry.model_dump()} for key, entry in entries]
    print(shown(rows, TENSOR_COLUMNS))


@app.command("verify")
def verify_(place: Place, step: Step = None) -> None:
    """Hash every file of every checkpoint (or of one step's) and compare.

    Exit code 1 if any is not whole.
    """
    folder = folder_of(place)
    found, bad = listing(folder)
    if step is not None:
        found, bad = [chosen(folder, step)], []
    total = len(found) + len(bad)
    for checkpoint in found:
        try:
            verify(checkpoint)
        except DamagedError as error:
            bad.append(Rejected(checkpoint.folder.root, error.what))
        else:
            print(f"{checkpoint.folder.root.name}: whole")
    for one in bad:
        print(f"{one.folder.name}: NOT whole: {one.reason}")
    if bad:
        raise ConflictError(
            f"{len(bad)} of {total} checkpoints are not whole.",
            "A resume passes them over; `hpcplat ckpt prune --damaged` removes them.",
        )


@app.command()
def prune(
    place: Place,
    keep_last: Annotated[int, typer.Option(min=1, help="How many stay.")] = 3,
    keep_every: Annotated[
        int | None, typer.Option(min=1, help="Keep those of every so many steps.")
    ] = None,
    best: Annotated[
        str | None, typer.Option(help="Keep the least of a metric; -NAME: the most.")
    ] = None,
    damaged: Annotated[
        bool, typer.Option("--damaged", help="Remove what is not whole, too.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would go; remove nothing.")
    ] = False,
) -> None:
    """Remove checkpoints that need not stay. The newest whole one always stays."""
    folder = folder_of(place)
    whole, rejected = newest_whole(folder)
    good, bad = listing(folder)
    refused = [one.folder for one in (*bad, *rejected)]
    gone = [
        one.folder.root
        for one in superfluous(good, Retention(keep_last, keep_every, best))
        if whole is not None and one.step != whole.step
    ]
    gone = [path for path in gone if path not in refused]
    for path in dict.fromkeys([*gone, *(refused if damaged else ())]):
        print(f"{'would remove' if dry_run else 'removed'} {path.name}")
        if not dry_run:
            discard(path)


@app.command()
def export(
    place: Place,
    to: Annotated[Path, typer.Option("--to", "-o", help="The .safetensors file.")],
    step: Step = None,
    prefix: Annotated[str, typer.Option(help="Which tensors.")] = "model.",
) -> None:
    """Write the weights as one safetensors file.

    Example: hpcplat ckpt export my-training --to weights.safetensors
    """
    try:
        from hpcplat.checkpoints.export import export as write  # needs torch
    except ModuleNotFoundError as error:
        raise UnavailableError(
            f"Exporting needs {error.name}, which is not installed.",
            "pip install 'hpcplat[train]'.",
        ) from error
    found = chosen(folder_of(place), step)
    verify(found)
    count = write(found, to, prefix)
    print(f"{to}: {count} tensors of step {found.step}")


def folder_of(place: str) -> Path:
    """Return the folder of checkpoints that a person means."""
    path = Path(place)
    if path.is_dir() and any(path.glob(f"{PREFIX}*")):
        return path
    run = RunFolder(found_run(place).folder)
    if run.spec.is_file():
        chosen_folder = read_spec(run.spec).checkpoint.folder
        if chosen_folder:
            return Path(chosen_folder)
    return run.checkpoints


def chosen(folder: Path, step: int | None) -> Checkpoint:
    """Return the checkpoint of a step, or the newest whole one."""
    if step is not None:
        return open_checkpoint(folder / f"{PREFIX}{step:010d}")
    found, rejected = newest_whole(folder)
    if found is None:
        reasons = "; ".join(f"{one.folder.name}: {one.reason}" for one in rejected)
        raise NotFoundError(
            f"{folder} has no whole checkpoint{f' ({reasons})' if reasons else ''}.",
            "Wait for the first one, or name another folder.",
        )
    return found


def _row(one: Checkpoint) -> dict[str, Any]:
    manifest = one.manifest
    return {
        "step": one.step,
        "samples": manifest.samples,
        "bytes": manifest.nbytes,
        "created": datetime.fromtimestamp(manifest.created, UTC).isoformat(),
        "layout": _layout(manifest.origin.layout, manifest.origin.world_size),
        "metrics": manifest.metrics,
        "reason": "",
    }


def _bad_row(one: Rejected) -> dict[str, Any]:
    step = int(one.folder.name.removeprefix(PREFIX))
    empty: dict[str, Any] = {
        "samples": None,
        "bytes": None,
        "created": "",
        "layout": "",
        "metrics": {},
    }
    return {"step": step, **empty, "reason": one.reason}


def _layout(layout: Mapping[str, Any], world: int) -> str:
    short = {"tensor": "tp", "pipeline": "pp", "context": "cp", "expert": "ep"}
    parts = [f"{short[k]}{v}" for k, v in layout.items() if k in short and v > 1]
    return " ".join([counted(world, "rank"), *parts])


def _described(one: Checkpoint) -> str:
    manifest, origin = one.manifest, one.manifest.origin
    facts = {
        "folder": one.folder.root,
        "step": manifest.step,
        "samples": manifest.samples,
        "size": f"{spoken_size(manifest.nbytes)} in {counted(len(manifest.files), 'file')}",
        "layout": _layout(origin.layout, origin.world_size),
        "dataset": origin.dataset,
        "dataset digest": origin.dataset_digest,
        "spec": origin.spec,
        "code": origin.code,
        "attempt": origin.attempt,
        "metrics": manifest.metrics,
        "extras": manifest.extras,
    }
    told = {name: value for name, value in facts.items() if value not in (None, {})}
    return "\n".join(f"{name:15}{value}" for name, value in told.items())


def _size(row: Mapping[str, Any]) -> str:
    return "" if row["bytes"] is None else spoken_size(row["bytes"])


def _metrics(row: Mapping[str, Any]) -> str:
    return " ".join(f"{name} {value:.4f}" for name, value in row["metrics"].items())


COLUMNS = (
    Column("STEP", lambda row: str(row["step"]), right=True),
    Column("SAMPLES", lambda row: str(row["samples"] or ""), 3, right=True),
    Column("SIZE", _size, 2, right=True),
    Column("CREATED", lambda row: row["created"][:19], 4),
    Column("LAYOUT", lambda row: row["layout"], 1),
    Column("METRICS", _metrics, 5, shrinks=True),
    Column("NOT WHOLE", lambda row: row["reason"], shrinks=True),
)
TENSOR_COLUMNS = (
    Column("TENSOR", lambda row: row["key"], shrinks=True),
    Column("FORMAT", lambda row: row["dtype"]),
    Column("SHAPE", lambda row: "x".join(map(str, row["shape"])) or "1"),
    Column("DIGEST", lambda row: row["digest"]),
)
