import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcplat import eventlog
from hpcplat.errors import HpcplatError, InvalidError, NotFoundError
from hpcplat.eventlog import EventKind, RunEvent
from hpcplat.runfolder import RunFolder
from hpcplat.tracking.curves import Point, history, join
from hpcplat.tracking.layout import attempt_folder
from hpcplat.tracking.panels import Run, View, panels
from hpcplat.tracking.record import Lost, Numbers, Opened, encode


def write(
    run: Path,
    attempt: int,
    number: int,
    steps: range,
    *,
    begun: float,
    shift: float = 0.0,
) -> None:
    folder = attempt_folder(run, attempt)
    folder.mkdir(parents=True, exist_ok=True)
    lines = [encode(Opened(begun, attempt, "main", 0, "n1", 7))]
    for step in steps:
        values = {"loss": step + shift, "lr": math.nan if step == 3 else 0.1}
        lines.append(encode(Numbers(begun + 1 + step, step, values)))
    (folder / f"main.{number}.jsonl").write_bytes(b"".join(lines))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write(tmp_path, 1, 0, range(10), begun=1000.0)
    write(tmp_path, 1, 1, range(8, 15), begun=1100.0, shift=0.5)
    write(tmp_path, 2, 0, range(12, 20), begun=1200.0)
    lost = RunEvent(EventKind.NODE_LOST, "node n2 is gone", 1, time=1050.0)
    ended = RunEvent(EventKind.ATTEMPT_ENDED, "over", 1, time=1190.0)
    for event in (lost, ended):
        eventlog.append(RunFolder(tmp_path).events, event)
    return tmp_path


def test_attempts_are_joined_and_nothing_is_overwritten_in_silence(run: Path) -> None:
    loss = history(run).curve("loss")
    assert [point.step for point in loss.points] == list(range(20))
    assert loss.points[9].value == 9.5
    assert loss.points[12].value == 12.0
    before = [(point.step, point.value) for point in loss.superseded]
    assert before == [(8, 8.0), (9, 9.0), (12, 12.5), (13, 13.5), (14, 14.5)]


def test_starts_again_and_failures_are_placed_by_step(run: Path) -> None:
    found = history(run, ["loss"])
    assert [(start.attempt, start.step) for start in found.restarts()] == [
        (1, 8),
        (2, 12),
    ]
    [failure] = found.failures
    assert (failure.what, failure.step) == ("node n2 is gone", 9)


def test_two_ranks_that_begin_are_one_restart(tmp_path: Path) -> None:
    for attempt in (1, 2):
        folder = attempt_folder(tmp_path, attempt)
        folder.mkdir(parents=True)
        for number in range(2):
            opened = Opened(1.0, attempt, "main", number * 3, "n1", 7)
            (folder / f"main.{number}.jsonl").write_bytes(encode(opened))
    assert [start.rank for start in history(tmp_path).restarts()] == [0]


def test_losses_and_damage_are_counted(run: Path) -> None:
    path = attempt_folder(run, 2) / "main.0.jsonl"
    lost = encode(Lost(1.0, 2, "disk")) + encode(Lost(2.0, 5, "disk"))
    path.write_bytes(path.read_bytes() + lost + b"torn")
    found = history(run)
    assert (found.lost, found.damaged) == (5, 1)


points = st.builds(
    Point, st.integers(0, 20), st.floats(), st.floats(0, 100), st.integers(1, 5)
)


@given(st.lists(points))
def test_joining_keeps_every_point_once(logged: list[Point]) -> None:
    newest, superseded = join(logged)
    steps = [point.step for point in newest]
    assert steps == sorted(set(steps))
    assert len(newest) + len(superseded) == len(logged)
    for point in newest:
        assert point is [p for p in logged if p.step == point.step][-1]


def test_a_panel_for_each_name(run: Path) -> None:
    runs = [Run("a", history(run)), Run("b", history(run))]
    loss, lr = panels(runs, ["loss", "lr"], View())
    assert [line.label for line in loss.lines] == ["a", "b"]
    assert lr.lines[0].not_finite == (3.0,)
    assert len(lr.lines[0].xs) == 19
    assert ("failure", 9.0) in {(mark.kind, mark.x) for mark in loss.marks}


def test_time_as_the_axis(run: Path) -> None:
    [loss] = panels([Run("a", history(run))], ["loss"], View(against_time=True))
    assert loss.lines[0].xs[0] == pytest.approx(1 / 3600)
    assert max(mark.x or 0 for mark in loss.marks) == pytest.approx(200 / 3600)


def test_smoothing_starts_at_the_first_value_and_keeps_a_constant(run: Path) -> None:
    [panel] = panels([Run("a", history(run))], ["loss"], View(smoothing=0.9))
    assert panel.lines[0].ys[0] == pytest.approx(0.0)
    assert panel.lines[0].ys[-1] < 19
    [flat] = panels([Run("a", history(run))], ["lr"], View(smoothing=0.9))
    assert flat.lines[0].ys == pytest.approx([0.1] * 19)


def test_what_cannot_be_drawn_is_said(run: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"'los'.*loss, lr"):
        panels([Run("a", history(run))], ["los"], View())
    with pytest.raises(InvalidError, match=r"0 to 0\.99"):
        View(smoothing=1.5)
    with pytest.raises(HpcplatError, match="No metrics were logged"):
        panels([Run("a", history(tmp_path / "none"))], [], View())
