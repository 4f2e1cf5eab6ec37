"""What a run's parameters in Aim say: the job, what was asked for, what made it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from hpcplat.errors import HpcplatError
from hpcplat.runfolder import RunFolder
from hpcplat.tracking.lineage import lineage
from hpcplat.tracking.mlflow_job import FOLDER, mlflow_runs
from hpcplat.tracking.mlflow_store import RUNS
from hpcplat.tracking.provenance import FILE
from server.collector.catalogue import TrackedRun

MOST_CHECKPOINTS: Final = 20  # the newest; `hpcplat runs show` has them all


def stamp(tracked: TrackedRun) -> tuple[Any, ...]:
    """Return what changes when a run should be described again."""
    times = [_modified(path) for path in _sources(tracked.folder)]
    return (tracked.state, tracked.ended, tracked.name, *times)


def description(tracked: TrackedRun) -> dict[str, Any]:
    """Return the parameters by name; what is damaged is left out."""
    job = {"id": tracked.id, "name": tracked.name, "state": tracked.state}
    found: dict[str, Any] = {"job": job | {"folder": str(tracked.folder)}}
    try:
        record = lineage(tracked.folder)
    except HpcplatError:  # nothing but metrics is there
        return found
    found["spec"] = record["spec"]
    found["lineage"] = _shortened(record)
    if logged := dict(mlflow_runs(tracked.folder)):
        found["mlflow"] = logged
    return found


def _shortened(record: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what would make hundreds of columns: packages, files."""
    environment = dict(record["environment"])
    environment["python"] = environment.get("python", {}).get("version", "")
    code = {k: v for k, v in record["code"].items() if k != "files"}
    checkpoints = {
        f"step {found['step']}": found["digest"]
        for found in record["checkpoints"][:MOST_CHECKPOINTS]
    }
    attempts = {
        f"attempt {found['attempt']}": {
            "slurm": found.get("slurm", {}),
            "nodes": found.get("nodes", []),
            "commit": found.get("code", {}).get("commit", ""),
        }
        for found in record["attempts"]
    }
    return {
        "code": code,
        "data": record["data"],
        "environment": environment,
        "parent": record["parent"] or {},
        "checkpoints": checkpoints,
        "attempts": attempts,
    }


def _sources(folder: Path) -> Iterator[Path]:
    run = RunFolder(folder)
    yield from (run.spec, run.checkpoints)
    for number in run.attempts():
        yield run.attempt(number).root / FILE
    yield from sorted((folder / FOLDER).glob(f"*/{RUNS}/*.json"))


def _modified(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0
