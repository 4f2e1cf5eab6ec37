"""The runs that came by the service's MLflow endpoint, as the collector sees them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from hpcplat.tracking.mlflow_store import ENDED, RUNS
from server.collector.catalogue import Catalogue, TrackedRun

MLFLOW: Final = "mlflow"  # in the service's data folder
TRACKED: Final = "tracked"  # run folders, below WORKSPACE/USER


class MlflowCatalogue:
    """MLflow runs below ``folder``, by workspace and user."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def runs(self, since: datetime) -> Iterator[TrackedRun]:
        """Return the runs that go on, and those that changed after ``since``."""
        for path in self._folder.glob(f"*/*/{RUNS}/*.json"):
            changed = path.stat().st_mtime >= since.timestamp()
            try:
                info = json.loads(path.read_bytes())["info"]
            except (ValueError, KeyError):
                continue
            if changed or info["status"] not in ENDED:
                yield _tracked(path, info)


class Several:
    """Catalogues one after the other."""

    def __init__(self, *catalogues: Catalogue) -> None:
        self._catalogues = catalogues

    def runs(self, since: datetime) -> Iterable[TrackedRun]:
        """Return the runs of them all."""
        for catalogue in self._catalogues:
            yield from catalogue.runs(since)


def _tracked(path: Path, info: dict[str, Any]) -> TrackedRun:
    user = path.parent.parent
    ended = info.get("end_time") if info["status"] in ENDED else None
    return TrackedRun(
        id=f"mlflow-{path.stem}",
        workspace=user.parent.name,
        name=info["run_name"],
        state=info["status"],
        folder=user / TRACKED / path.stem,
        created=datetime.fromtimestamp(info["start_time"] / 1000, UTC),
        ended=None if ended is None else ended / 1000,
    )
