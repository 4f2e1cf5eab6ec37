"""Where a job's MLflow runs go: all into its own run folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from hpcplat.foreign import object_in
from hpcplat.tracking.layout import MAIN, metrics_files
from hpcplat.tracking.mlflow_store import RUNS, MlflowStore
from hpcplat.tracking.writer import MetricsWriter

FOLDER: Final = "mlflow"
SOURCE: Final = "mlflow"


def store_of_job(run: Path, attempt: int, node: str) -> MlflowStore:
    """Return the store of one node of a job.

    The first MLflow run is the job's own curve, unless the job logs one itself; further
    ones (nested runs, a loop over settings) are kept apart.
    """
    opened: list[str] = []

    def writer(number: str) -> MetricsWriter:
        source = f"{SOURCE}-{number[:8]}" if opened else _first_source(run, attempt)
        opened.append(number)
        return MetricsWriter(run, attempt=attempt, source=source)

    return MlflowStore(run / FOLDER / node, writer)


def mlflow_runs(run: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield names, parameters and tags of the MLflow runs of a job."""
    for path in sorted((run / FOLDER).glob(f"*/{RUNS}/*.json")):
        kept = object_in(path)
        if kept is None:
            continue
        shown = {"params": kept["params"], "tags": kept["tags"]}
        yield kept["info"]["run_name"], shown


def _first_source(run: Path, attempt: int) -> str:
    found = metrics_files(run)
    own = any((file.attempt, file.source) == (attempt, MAIN) for file in found)
    return SOURCE if own else MAIN
