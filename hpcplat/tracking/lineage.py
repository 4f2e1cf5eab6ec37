"""What made a run: one record that answers which data, code and checkpoint it came of.

Nothing is stored twice: the record is put together from what lies in the run folder
(specification, each attempt's provenance, events, checkpoints' manifests).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from hpcplat import eventlog
from hpcplat.checkpoints.folder import Checkpoint, listing
from hpcplat.errors import NotFoundError
from hpcplat.eventlog import EventKind, RunEvent
from hpcplat.foreign import object_in
from hpcplat.runfolder import RunFolder
from hpcplat.tracking.provenance import FILE

FORMAT: Final = 1


def lineage(folder: Path) -> dict[str, Any]:
    """Return the lineage of the run in ``folder``, as plain values.

    ``code``, ``data``, ``environment`` and ``parent`` are those of the newest attempt
    that left a record; ``attempts`` has them all. NotFoundError if it is no run folder.
    """
    run = RunFolder(folder)
    spec = object_in(run.spec)
    if spec is None and not run.metrics.is_dir():
        raise NotFoundError(
            f"{folder} is no run folder.", "`hpcplat show JOB` prints a job's folder."
        )
    attempts = list(_attempts(run))
    newest: Mapping[str, Any] = attempts[-1] if attempts else {}
    return {
        "format": FORMAT,
        "folder": str(folder),
        "key": (object_in(run.plan) or {}).get("key", ""),
        "spec": spec or {},
        "layout": (spec or {}).get("parallelism", {}),
        "code": newest.get("code", {}),
        "data": newest.get("data", []),
        "environment": newest.get("environment", {}),
        "parent": newest.get("parent"),
        "attempts": attempts,
        "checkpoints": [_checkpoint(found) for found in _checkpoints(run, spec or {})],
    }


def _attempts(run: RunFolder) -> Iterator[dict[str, Any]]:
    ends = {event.attempt: event for event in _events(run, EventKind.ATTEMPT_ENDED)}
    starts = {event.attempt: event for event in _events(run, EventKind.RANKS_STARTED)}
    for number in sorted({*run.attempts(), *starts, *ends}):
        found = object_in(run.attempt(number).root / FILE) or {"attempt": number}
        start, end = starts.get(number), ends.get(number)
        if start is not None:
            found["started"] = start.time
            found["nodes"] = start.details.get("nodes", [])
        if end is not None:
            found["ended"] = end.time
            found["exit_code"] = end.details.get("code")
            found["reason"] = end.what
        yield found


def _events(run: RunFolder, kind: EventKind) -> Iterator[RunEvent]:
    offset, end = -1, 0
    while end != offset:
        offset = end
        events, end = eventlog.read(run.events, offset)
        yield from (event for event in events if event.kind == kind)


def _checkpoints(run: RunFolder, spec: Mapping[str, Any]) -> list[Checkpoint]:
    named = (spec.get("checkpoint") or {}).get("folder")
    good, _ = listing(Path(named) if named else run.checkpoints)
    key = (object_in(run.plan) or {}).get("key")
    return [one for one in good if not named or one.manifest.origin.job in (key, None)]


def _checkpoint(found: Checkpoint) -> dict[str, Any]:
    """Name a checkpoint by its manifest's digest: it lists the digest of every file."""
    manifest = found.manifest
    return {
        "step": manifest.step,
        "samples": manifest.samples,
        "created": manifest.created,
        "folder": str(found.folder.root),
        "digest": hashlib.sha256(found.folder.manifest.read_bytes()).hexdigest(),
        "bytes": manifest.nbytes,
        "dataset": manifest.origin.dataset,
        "dataset_digest": manifest.origin.dataset_digest,
        "attempt": manifest.origin.attempt,
    }
