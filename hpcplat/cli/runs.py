"""`hpcplat runs`: what made each run, what differs, and how to have it again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from hpcplat.cli.jobs import with_short_ids
from hpcplat.cli.progress import progress_of
from hpcplat.cli.runs_found import found_run
from hpcplat.cli.session import AsJson, print_json, service
from hpcplat.cli.tables import Column, is_terminal, shown
from hpcplat.cli.times import age, moment
from hpcplat.errors import ConflictError, ExitCode
from hpcplat.files import write_whole
from hpcplat.jobs import spec_of
from hpcplat.tracking.difference import differences
from hpcplat.tracking.export import as_csv, as_json_text
from hpcplat.tracking.lineage import lineage
from hpcplat.tracking.reproduction import obstacles, spec_to_repeat

app = typer.Typer(help="What made each run, what differs, how to have it again.")

Run = Annotated[str, typer.Argument(help="A job's id or name, or its run folder.")]

READERS: Final = 8

COLUMNS: Final = (
    Column("ID", lambda row: row["short"] if is_terminal() else row["id"]),
    Column("NAME", lambda row: row["name"], shrinks=True),
    Column("STATE", lambda row: row["state"], coloured=True),
    Column("STEP", lambda row: _number(row["step"]), right=True),
    Column("LOSS", lambda row: _number(row["loss"]), right=True),
    Column("ATTEMPTS", lambda row: str(row["attempts"]), rank=3, right=True),
    Column("WORKSPACE", lambda row: row["workspace"], rank=2),
    Column("AGE", lambda row: age(moment(row["created_at"])), rank=1, right=True),
)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


@app.command("ls")
def list_runs(
    name: Annotated[str | None, typer.Option(help="Only of this name.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="At most.")] = 50,
    *,
    as_json: AsJson = False,
) -> None:
    """List runs, newest first, with how far each came."""
    with service() as client:
        jobs = client.jobs(limit=limit, **({"name": name} if name else {}))
    rows = with_progress(jobs)
    if as_json:
        print_json(rows)
    elif rows:
        print(shown(with_short_ids(rows), COLUMNS))


def with_progress(jobs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the jobs with how far each came, as their run folders tell.

    On a shared file system each folder is a wait of its own: many at once.
    """
    with ThreadPoolExecutor(READERS) as pool:
        return list(pool.map(_with_progress, jobs))


def _with_progress(job: Mapping[str, Any]) -> dict[str, Any]:
    found = progress_of(Path(job["folder"]), None)
    step, loss = (found.step, found.loss) if found else (None, None)
    return {**job, "step": step, "loss": loss}


@app.command()
def show(run: Run, *, as_json: AsJson = False) -> None:
    """Show which code, data, environment and checkpoints made a run."""
    found = found_run(run)
    record = lineage(found.folder)
    if as_json:
        print_json(record)
        return
    for title, value in _summary(record):
        print(f"{title:<12} {value}")
    if found.aim:
        print(f"{'Aim':<12} {found.aim}")


def _summary(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    code, python = record["code"], record["environment"].get("python", {})
    lines = [
        ("Run", f"{record['spec'].get('name', '?')} in {record['folder']}"),
        ("Code", _code(code)),
        *(("Data", _data(data)) for data in record["data"]),
        ("Python", f"{python.get('version', '?')} {python.get('executable', '')}"),
        ("Packages", _packages(python.get("packages", {}))),
    ]
    gpus = [gpu.get("name", "") for gpu in record["environment"].get("gpus", [])]
    if gpus:
        lines.append(("GPUs", f"{len(gpus)} x {gpus[0]}"))
    if record["parent"]:
        lines.append(("Began from", str(record["parent"]["checkpoint"])))
    lines += [("Attempt", _attempt(found)) for found in record["attempts"]]
    lines += [("Checkpoint", _checkpoint(found)) for found in record["checkpoints"][:5]]
    return lines


def _code(code: Mapping[str, Any]) -> str:
    if not code.get("commit"):
        return f"{code.get('folder', '?')}, not in Git"
    state = "clean" if code["clean"] else "with changes that are not committed"
    return f"{code['commit'][:12]} ({code['branch'] or 'no branch'}), {state}"


def _data(data: Mapping[str, Any]) -> str:
    """Return the reference and what it stood for; a digest is said once."""
    reference = str(data["reference"])
    found = str(data.get("digest") or data.get("problem", ""))
    return reference if found and found in reference else f"{reference} {found}"


def _packages(packages: Mapping[str, str]) -> str:
    known = ("torch", "megatron-core", "numpy", "transformers", "lightning")
    named = [f"{name} {packages[name]}" for name in known if name in packages]
    return ", ".join([*named, f"{len(packages)} in all"])


def _attempt(found: Mapping[str, Any]) -> str:
    slurm = found.get("slurm", {}).get("job_id", "?")
    nodes = ", ".join(found.get("nodes", [])) or found.get("slurm", {}).get(
        "nodes", "?"
    )
    reason = found.get("reason", "not over")
    return f"{found['attempt']}: Slurm job {slurm} on {nodes}: {reason}"


def _checkpoint(found: Mapping[str, Any]) -> str:
    return f"step {found['step']}, {found['digest'][:12]}, {found['folder']}"


@app.command()
def diff(left: Run, right: Run, *, as_json: AsJson = False) -> None:
    """Show what differs between two runs."""
    mine, others = (lineage(found_run(word).folder) for word in (left, right))
    for record in (mine, others):
        del record["checkpoints"]  # they always differ, and follow from the rest
    found = list(differences(mine, others))
    if as_json:
        print_json([difference._asdict() for difference in found])
        return
    for path, before, after in found:
        print(f"{path}: {_short(before)} -> {_short(after)}")
    if not found:
        print("Nothing differs that is on record.")


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 100 else f"{text[:99]}…"


@app.command()
def export(
    run: Run,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="FILE.json (all) or FILE.csv (numbers).")
    ],
) -> None:
    """Write a run's record and its metrics to a file."""
    folder = found_run(run).folder
    text = as_csv(folder) if out.suffix == ".csv" else as_json_text(folder)
    write_whole(out, text)
    print(out)


@app.command()
def reproduce(
    run: Run,
    *,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Submit although something differs now.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the batch script; submit nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Submit the same job again from its record, if all that made it is still there."""
    from hpcplat.cli.submit import send  # one command's; it loads the submission

    record = lineage(found_run(run).folder)
    found = obstacles(record)
    for obstacle in found:
        typer.echo(f"differs: {obstacle}", err=True)
    if found and not anyway:
        raise ConflictError(
            "This run can't be had again as it was: what differs stands above.",
            "Bring them back, or submit --anyway.",
        )
    spec = spec_of(spec_to_repeat(record))
    code = send(spec, dry_run=dry_run, watch=False, as_json=as_json)
    if code != ExitCode.DONE:
        raise typer.Exit(code)
