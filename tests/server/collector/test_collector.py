import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import pytest

from hpcplat import eventlog
from hpcplat.errors import ConflictError
from hpcplat.eventlog import EventKind, RunEvent
from hpcplat.runfolder import RunFolder
from hpcplat.tracking import Distribution, Image, MetricsWriter, provenance
from hpcplat.tracking.aimlink import aim_run_hash
from hpcplat.tracking.layout import metrics_files
from server.collector import numbers
from server.collector.catalogue import Catalogue, TrackedRun
from server.collector.collector import Collector
from server.collector.repository import Repository

pytestmark = pytest.mark.slow

Run: TypeAlias = Any  # Aim's


class Seen(Protocol):
    """What the fixture `see` tells of a run."""

    curves: Mapping[tuple[str, str], list[tuple[int, float, float]]]
    parameters: Mapping[str, Any]
    messages: list[str]
    ended: float | None
    run: Run


class Jobs(Catalogue, Protocol):
    """A catalogue that tests write."""

    tracked: dict[str, TrackedRun]

    def add(self, folder: Path, job: str = "job-1") -> None: ...
    def end(self, time: float, job: str = "job-1") -> None: ...


Look: TypeAlias = Callable[[], Seen]
See: TypeAlias = Callable[[Path, str], Seen]
HASH = aim_run_hash("job-1")


@pytest.fixture
def collector(catalogue: Jobs, tmp_path: Path) -> Iterator[Collector]:
    made = Collector(catalogue, tmp_path / "aim")
    yield made
    made.close()


@pytest.fixture
def seen(collector: Collector, tmp_path: Path, see: See) -> Look:
    def look() -> Seen:
        collector.look()
        collector.close()
        return see(tmp_path / "aim" / "team", HASH)

    return look


def log(run: Path, steps: range, attempt: int = 1, shift: float = 0.0) -> None:
    writer = MetricsWriter(run, attempt=attempt)
    for step in steps:
        writer.log({"loss": step + shift, "lr": 0.1}, step=step)
    writer.close()


def values(points: list[tuple[int, float, float]]) -> dict[int, float]:
    return {step: value for step, value, _ in points}


def test_all_attempts_are_one_run(run: Path, seen: Look) -> None:
    log(run, range(50))
    log(run, range(40, 60), attempt=2)
    found = seen()
    assert values(found.curves["loss", ""]) == {step: step for step in range(60)}
    assert found.run.name == "gpt job-1"
    assert found.run.experiment == "gpt"
    assert found.run.active


def test_steps_run_again_overwrite_nothing_in_silence(run: Path, seen: Look) -> None:
    log(run, range(10))
    log(run, range(8, 12), shift=0.5)
    log(run, range(9, 14), attempt=2)
    found = seen()
    assert values(found.curves["loss", ""]) == {
        **{step: step for step in range(14)},
        8: 8.5,
    }
    second = values(found.curves["loss", "superseded_by=attempt 1 start 2"])
    assert second == {8: 8.0, 9: 9.0}
    third = values(found.curves["loss", "superseded_by=attempt 2"])
    assert third == {9: 9.5, 10: 10.5, 11: 11.5}
    assert found.parameters["tracking"]["points_run_again"] == 10
    stairs = values(found.curves["hpcplat/attempt", ""])
    assert stairs == {0: 1, 7: 1, 8: 1, 9: 2, 13: 2}


def test_failures_are_marked_where_they_happened(run: Path, seen: Look) -> None:
    log(run, range(10))
    time.sleep(0.01)
    lost = RunEvent(EventKind.NODE_LOST, "node n2 is gone", 1)
    eventlog.append(RunFolder(run).events, lost)
    time.sleep(0.01)
    log(run, range(10, 20), attempt=2)
    ended = RunEvent(EventKind.ATTEMPT_ENDED, "all ranks are done", 2)
    eventlog.append(RunFolder(run).events, ended)
    found = seen()
    assert values(found.curves["hpcplat/failures", ""]) == {0: 0, 9: 1}
    assert found.messages == ["node n2 is gone", "all ranks are done"]


def test_collecting_again_and_again_changes_nothing(
    run: Path, collector: Collector, catalogue: Jobs, tmp_path: Path, see: See
) -> None:
    writer = MetricsWriter(run)
    for step in range(100):
        writer.log({"loss": step}, step=step)
        if step % 10 == 0:
            writer.flush()
            collector.look()
        if step % 30 == 0:  # a restart of the service
            collector.close()
            collector = Collector(catalogue, tmp_path / "aim")
    writer.close()
    collector.look()
    collector.close()
    found = see(tmp_path / "aim" / "team", HASH)
    assert values(found.curves["loss", ""]) == {step: step for step in range(100)}
    assert set(found.curves) == {("loss", ""), ("hpcplat/attempt", "")}
    times = [point[2] for point in found.curves["loss", ""]]
    assert times == sorted(times)


@pytest.mark.parametrize("crash", ["between the stores", "before both"])
def test_a_crash_between_the_writes_leaves_each_point_once(
    run: Path,
    catalogue: Jobs,
    tmp_path: Path,
    see: See,
    crash: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log(run, range(20))
    with monkeypatch.context() as patch:
        _crash_at(patch, crash)
        first = Collector(catalogue, tmp_path / "aim")
        first.look()
    first.close()
    log(run, range(15, 25), attempt=2, shift=0.5)
    with monkeypatch.context() as patch:
        _crash_at(patch, crash)
        second = Collector(catalogue, tmp_path / "aim")
        second.look()
    second.close()
    third = Collector(catalogue, tmp_path / "aim")
    third.look()
    third.close()
    found = see(tmp_path / "aim" / "team", HASH)
    again = {step: step + 0.5 for step in range(15, 25)}
    assert (
        values(found.curves["loss", ""]) == {step: step for step in range(15)} | again
    )
    superseded = values(found.curves["loss", "superseded_by=attempt 2"])
    assert superseded == {step: step for step in range(15, 20)}


def _crash_at(patch: pytest.MonkeyPatch, crash: str) -> None:
    """Let the commit fail after it wrote the values, or before it wrote anything."""

    def fail(*_: object) -> None:
        raise OSError("the power is gone")

    if crash == "before both":
        patch.setattr(numbers.NumberWriter, "commit", fail)
    else:
        patch.setattr(numbers.NumberWriter, "_summarize", fail)


def test_numbers_that_are_not_finite_are_kept_and_flagged(
    run: Path, seen: Look
) -> None:
    writer = MetricsWriter(run)
    for step, loss in enumerate([1.0, math.nan, math.inf, 2.0]):
        writer.log({"loss": loss}, step=step)
    writer.close()
    found = seen()
    kept = [value for _, value, _ in found.curves["loss", ""]]
    assert kept[0] == 1.0
    assert math.isnan(kept[1])
    assert kept[2:] == [math.inf, 2.0]
    assert found.parameters["tracking"]["first_not_finite"] == {"loss": 1}


def test_names_of_all_kinds(run: Path, seen: Look) -> None:
    names = [
        "a/b/c",
        "überwachung",
        "损失",
        "a b",
        "x" * 250,
        "..",
        "'quoted\"",
        "\xfe",
    ]
    writer = MetricsWriter(run)
    writer.log(dict.fromkeys(names, 1.0), step=0)
    writer.log(dict.fromkeys(names, 2.0), step=1)
    writer.close()
    found = seen()
    assert {name for name, _ in found.curves} == {*names, "hpcplat/attempt"}


def test_ranks_and_nodes_are_contexts(run: Path, seen: Look) -> None:
    for source in ("main", "rank-3", "node-n1", "mlflow"):
        writer = MetricsWriter(run, source=source)
        writer.log({"loss": 1.0}, step=0)
        writer.close()
    found = seen()
    contexts = {context for name, context in found.curves if name == "loss"}
    assert contexts == {"", "rank=3", "node=n1", "mlflow=mlflow"}


def test_texts_histograms_images_and_figures(run: Path, seen: Look) -> None:
    import numpy as np

    class Plotly:
        def to_plotly_json(self) -> dict[str, Any]:
            return {}

        def to_json(self) -> str:
            return '{"data": [], "layout": {}}'

    pixels = np.zeros((4, 6, 3), np.uint8)
    writer = MetricsWriter(run)
    for step in range(2):
        writer.log({"text": "Once", "weights": Distribution([1.0, 2.0])}, step=step)
        writer.log({"image": Image(pixels, "black"), "figure": Plotly()}, step=step)
    writer.log({"text": 1.0}, step=3)  # a number under a name of texts
    writer.close()
    found = seen().run
    text = found.get_text_sequence("text", _context())
    assert [value.data for value in text.values.tolist()] == ["Once", "Once"]
    image = found.get_image_sequence("image", _context()).values.tolist()[1]
    assert (image.size, image.caption) == ((6, 4), "black")
    weights = found.get_distribution_sequence("weights", _context()).values.tolist()[0]
    assert weights.weights.sum() == 2
    figure = found.get_figure_sequence("figure", _context()).values.tolist()[0]
    assert json.loads(figure.data)["layout"] == {}


def _context() -> object:
    from aim.storage.context import Context

    return Context({})


def test_a_job_that_is_over_leaves_no_active_run(
    run: Path, catalogue: Jobs, collector: Collector, tmp_path: Path, see: See
) -> None:
    log(run, range(5))
    collector.look()
    catalogue.end(time.time() - 1000)
    collector.look()
    progress = tmp_path / "aim" / "team" / ".aim" / "meta" / "progress"
    assert list(progress.iterdir()) == []
    collector.close()
    found = see(tmp_path / "aim" / "team", HASH)
    assert not found.run.active
    assert found.ended == catalogue.tracked["job-1"].ended
    assert found.parameters["job"]["state"] == "COMPLETED"


def test_a_job_that_comes_back_is_active_again(
    run: Path, catalogue: Jobs, collector: Collector, seen: Look
) -> None:
    log(run, range(5))
    catalogue.end(time.time() - 1000)
    collector.look()
    catalogue.add(run)
    log(run, range(5, 9), attempt=2)
    found = seen()
    assert found.run.active
    assert len(found.curves["loss", ""]) == 9


def test_what_is_torn_at_the_end_is_counted(
    run: Path, catalogue: Jobs, seen: Look
) -> None:
    log(run, range(5))
    [file] = metrics_files(run)
    file.path.write_bytes(file.path.read_bytes()[:-7])
    catalogue.end(time.time() - 1000)
    found = seen()
    assert len(found.curves["loss", ""]) == 4
    assert found.parameters["tracking"]["lines_damaged"] == 1


def test_a_run_s_parameters_are_its_record(run: Path, seen: Look) -> None:
    folder = RunFolder(run)
    folder.spec.write_text('{"name": "gpt", "resources": {"nodes": 2}}')
    folder.attempt(1).root.mkdir(parents=True)
    provenance.record(folder, 1, {"SLURM_JOB_ID": "7", "PATH": os.defpath})
    log(run, range(1))
    found = seen()
    assert found.parameters["spec"]["resources"] == {"nodes": 2}
    lineage = found.parameters["lineage"]
    assert lineage["attempts"]["attempt 1"]["slurm"] == {"job_id": "7"}
    assert lineage["environment"]["machine"]["kernel"]


def test_a_second_collector_is_refused(collector: Collector, tmp_path: Path) -> None:
    collector.look()
    with pytest.raises(ConflictError, match="Another collector"):
        Repository(tmp_path / "aim" / "team")


@pytest.mark.parametrize("damaged", ["meta/chunks/HASH", "seqs/chunks/HASH", "sqlite"])
def test_what_is_damaged_is_collected_again(
    run: Path, catalogue: Jobs, tmp_path: Path, see: See, damaged: str
) -> None:
    log(run, range(50))
    first = Collector(catalogue, tmp_path / "aim")
    first.look()
    first.close()
    inside = tmp_path / "aim" / "team" / ".aim"
    if damaged == "sqlite":
        (inside / "run_metadata.sqlite").write_bytes(b"no database" * 1000)
    else:
        for path in (inside / damaged.replace("HASH", HASH)).iterdir():
            path.write_bytes(b"damage" * 100)
    log(run, range(50, 60), attempt=2)
    second = Collector(catalogue, tmp_path / "aim")
    second.look()
    second.close()
    found = see(tmp_path / "aim" / "team", HASH)
    assert values(found.curves["loss", ""]) == {step: step for step in range(60)}
    assert len(list((tmp_path / "aim" / "team").glob("damaged-*/*"))) >= 1


def test_one_run_that_fails_does_not_hold_up_the_others(
    run: Path, catalogue: Jobs, collector: Collector, tmp_path: Path, see: See
) -> None:
    log(run, range(5))
    other = tmp_path / "other"
    other.mkdir()
    log(other, range(7))
    RunFolder(run).spec.mkdir()  # cannot be read: a fault nobody foresaw
    catalogue.add(other, "job-2")
    collector.look()
    collector.close()
    found = see(tmp_path / "aim" / "team", aim_run_hash("job-2"))
    assert len(found.curves["loss", ""]) == 7


def test_series_are_bounded(
    run: Path, seen: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numbers, "MAX_SERIES", 5)
    writer = MetricsWriter(run)
    writer.log({f"name-{number}": 1.0 for number in range(20)}, step=0)
    writer.close()
    found = seen()
    assert len(found.curves) == 5
    assert found.parameters["tracking"]["values_dropped"] == 17


def test_the_same_as_what_aim_itself_would_have_written(
    run: Path, seen: Look, tmp_path: Path, see: See
) -> None:
    import aim

    own = tmp_path / "own"
    own.mkdir()
    repo = aim.Repo(str(own), init=True)
    tracked = aim.Run(
        repo=repo,
        system_tracking_interval=None,
        log_system_params=False,
        capture_terminal_logs=False,
    )
    writer = MetricsWriter(run)
    for step in range(20):
        writer.log({"loss": 1 / (step + 1)}, step=step)
        tracked.track(1 / (step + 1), name="loss", step=step, context={})
    writer.close()
    tracked.close()
    ours, theirs = seen(), see(own, tracked.hash)
    assert values(ours.curves["loss", ""]) == values(theirs.curves["loss", ""])
    for info in ("first_step", "last_step"):
        [our] = [m for m in ours.run.metrics() if m.name == "loss"]
        [their] = list(theirs.run.metrics())
        assert getattr(our, info)() == getattr(their, info)()
    trace = _trace(ours.run)
    assert trace == _trace(theirs.run)
    assert trace["dtype"] == "float"


def _trace(run: Run) -> dict[str, Any]:
    [trace] = [
        dict(traces["loss"])
        for traces in run.meta_run_tree.collect("traces").values()
        if "loss" in traces
    ]
    return trace
