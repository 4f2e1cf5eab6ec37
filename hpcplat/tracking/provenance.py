"""The record of one attempt: which code, data and environment it began with.

Made on the job's first node, as the job's user, when the attempt begins: what was
submitted may have been changed while the job waited.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from hpcplat.errors import HpcplatError
from hpcplat.files import write_whole
from hpcplat.foreign import object_in
from hpcplat.runfolder import RunFolder
from hpcplat.settings import DATASETS
from hpcplat.tracking.code_state import code_state
from hpcplat.tracking.surroundings import slurm_ids, surroundings

FILE: Final = "provenance.json"
DIFF: Final = "code.diff"
OWNERS_FILE: Final = 0o600  # a diff may hold what nobody else should see


def record(run: RunFolder, attempt: int, environ: Mapping[str, str]) -> None:
    """Write the record of an attempt into its folder of logs."""
    folder = run.attempt(attempt).root
    plan = _json(run.plan)
    spec = _json(run.spec)
    argv = [str(word) for word in plan.get("argv", ())]
    code, diff = code_state(Path(plan.get("folder") or run.root), argv)
    found = {
        "attempt": attempt,
        "time": time.time(),
        "slurm": slurm_ids(environ),
        "code": code.as_json(),
        "data": [_dataset(spec["data"], _root(spec, plan))] if spec.get("data") else [],
        "environment": {},
        "parent": _parent(spec),
    }
    if diff:
        write_whole(folder / DIFF, diff, OWNERS_FILE)
    _write(folder, found)  # at once: the job may be over in a second
    _write(folder, {**found, "environment": surroundings(environ)})


def _write(folder: Path, found: Mapping[str, Any]) -> None:
    write_whole(folder / FILE, json.dumps(found, ensure_ascii=False, indent=1) + "\n")


def _json(path: Path) -> dict[str, Any]:
    """Return a JSON file's content; empty if there is none, as outside of a job."""
    return object_in(path) or {}


def _root(spec: Mapping[str, Any], plan: Mapping[str, Any]) -> Path | None:
    """Return the folder of all datasets, as the ranks are told it."""
    data = (spec.get("settings") or {}).get("data")
    named = data.get("root") if isinstance(data, dict) else None
    root = named or plan.get("variables", {}).get(DATASETS)
    return None if root is None else Path(str(root))


def _dataset(reference: str, root: Path | None) -> dict[str, str]:
    """Return the version that a reference stands for now, with its digest."""
    from hpcplat.datasets.store import locate  # heavy, and only where there is data

    try:
        folder = locate(reference, root)
    except HpcplatError as error:
        return {"reference": reference, "problem": str(error)}
    return {"reference": reference, "digest": folder.name, "folder": str(folder)}


def _parent(spec: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the checkpoint that the job was told to start from, and its job."""
    source = (spec.get("checkpoint") or {}).get("resume_from")
    if not source:
        return None
    for path in (Path(source), *sorted(Path(source).glob("step-*"), reverse=True)):
        origin = _json(path / "manifest.json").get("origin")
        if origin:
            return {"checkpoint": str(path), "job": origin.get("job"), "origin": origin}
    return {"checkpoint": source, "job": None}
