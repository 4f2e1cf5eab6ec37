"""What is known of the GPUs of past jobs: from run folders, else from accounting."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from hpcplat import eventlog
from hpcplat.errors import ForbiddenError, NotFoundError
from hpcplat.eventlog import RunEvent
from hpcplat.runfolder import RunFolder
from hpcplat.slurm.scheduler import PastJob
from hpcplat.tracking.gpu_tally import idle_share, tally_of
from server import logfiles
from server.people.idle import Accounting, Watch, by_run, by_slurm
from server.queries.starts import Start

LARGEST: Final = 8 * 1024 * 1024  # bytes of events
_ADDRESS: Final = re.compile(r"(?P<job>\d+)(?:_(?P<task>\d+))?")
_VERSION: Final = re.compile(r"(?P<year>\d+)\.(?P<month>\d+)")


class Watching:
    """Tells of each record what is known; ``starts``: of the service's own jobs."""

    def __init__(self, starts: Iterable[Start], site: Accounting) -> None:
        self._site = site
        self._starts: dict[tuple[int, int], list[Start]] = {}
        for start in starts:
            key = (start.slurm_job_id, start.task)
            self._starts.setdefault(key, []).append(start)

    def of(self, record: PastJob) -> Watch:
        """Return what is known of a record's GPUs: the run folder knows best."""
        start = self._start(record)
        events = () if start is None else _events(start)
        if start is None or not events:
            return by_slurm(record, self._site)
        return by_run(events, _given(start.spec), _idle_share(start))

    def _start(self, record: PastJob) -> Start | None:
        """Return the newest start that is no younger; a lost node makes a record more."""
        found = _ADDRESS.fullmatch(record.address)
        if found is None or record.started is None:
            return None
        key = (int(found["job"]), int(found["task"]) if found["task"] else -1)
        known = self._starts.get(key, ())
        older = [start for start in known if start.started_at <= record.started]
        return older[-1] if older else None


def accounting_of(config: Mapping[str, str]) -> Accounting:
    """Return what accounting can tell, from ``scontrol show config``."""
    found = _VERSION.match(config.get("SLURM_VERSION", ""))
    version = (int(found["year"]), int(found["month"])) if found else (0, 0)
    enforced = config.get("AccountingStorageEnforce", "").lower()
    return Accounting(version, keeps_steps="nosteps" not in enforced)


def _run(start: Start) -> RunFolder:
    whole = RunFolder(Path(start.folder))
    return whole if start.task < 0 else whole.task(start.task + start.offset)


def _events(start: Start) -> Sequence[RunEvent]:
    content = _content(start, _run(start).events, LARGEST)
    return eventlog.parse(content)


def _idle_share(start: Start) -> float | None:
    attempt = _run(start).attempt(start.number)
    files = map(attempt.gpu_tally, start.nodes)
    return idle_share(tally_of(_content(start, file, 1000)) for file in files)


def _content(start: Start, path: Path, limit: int) -> bytes:
    root = Path(start.folder)
    try:
        return logfiles.read_piece(root, path, 0, limit).data
    except (NotFoundError, ForbiddenError):
        return b""


def _given(spec: Mapping[str, Any]) -> int | None:
    """Return how many GPUs the ranks of a spec have; its spare nodes' are not theirs."""
    resources = spec.get("resources", {})
    each = resources.get("gpus_per_node")
    return int(resources.get("nodes", 1)) * int(each) if each else None
