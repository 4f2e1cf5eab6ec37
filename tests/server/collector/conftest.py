import shutil
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from server.collector.catalogue import TrackedRun

if sys.version_info < (3, 13):  # Aim exists for these
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Aim's own, at import
        import aim
else:
    collect_ignore_glob = ["test_*.py"]


class Listed:
    """A catalogue that is a list."""

    def __init__(self) -> None:
        self.tracked: dict[str, TrackedRun] = {}

    def runs(self, since: datetime) -> Iterable[TrackedRun]:
        return list(self.tracked.values())

    def add(self, folder: Path, job: str = "job-1") -> None:
        created = datetime(2026, 1, 1, tzinfo=UTC)
        self.tracked[job] = TrackedRun(job, "team", "gpt", "RUNNING", folder, created)

    def end(self, time: float, job: str = "job-1") -> None:
        self.tracked[job] = replace(self.tracked[job], state="COMPLETED", ended=time)


class Seen(NamedTuple):
    """What Aim's public interface says of a run."""

    curves: Mapping[tuple[str, str], list[tuple[int, float, float]]]
    parameters: Mapping[str, Any]
    messages: list[str]
    ended: float | None
    run: Any


def _see(repository: Path, run_hash: str) -> Seen:
    """Read a run as Aim shows it, once its index is up to date."""
    from aim.sdk.index_manager import RepoIndexManager

    repo = aim.Repo(str(repository))
    RepoIndexManager(repo).index(run_hash)
    repo.container_pool.clear()
    run = aim.Run(run_hash, repo=repo, read_only=True)
    curves = {}
    for metric in run.metrics():
        steps, (values, _, times) = metric.data.items_list()
        words = ", ".join(f"{k}={v}" for k, v in metric.context.to_dict().items())
        curves[metric.name, words] = list(zip(steps, values, times, strict=True))
    records = run.get_log_records()
    messages = [r.message for r in records.data.items_list()[1][0]] if records else []
    parameters = {key: run.get(key) for key in ("job", "tracking", "spec", "lineage")}
    return Seen(curves, parameters, messages, run.end_time, run)


@pytest.fixture
def catalogue(run: Path) -> Listed:
    listed = Listed()
    listed.add(run)
    return listed


@pytest.fixture(scope="session")
def empty_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Making one takes Aim some seconds."""
    folder = tmp_path_factory.mktemp("empty")
    aim.Repo(str(folder), init=True)
    return folder


@pytest.fixture(autouse=True)
def _repository(tmp_path: Path, empty_repository: Path) -> None:
    shutil.copytree(empty_repository, tmp_path / "aim" / "team")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    return folder


@pytest.fixture
def see() -> Callable[[Path, str], Seen]:
    return _see
