import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcplat.cli import main
from hpcplat.errors import ExitCode
from hpcplat.tracking import MetricsWriter
from hpcplat.tracking.panels import Line
from hpcplat.tracking.terminal import _thinned, round_ticks


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("SLURMD_NODENAME", "n3")
    folder = tmp_path / "job-7"
    folder.mkdir()
    for attempt, steps in ((1, range(60)), (2, range(50, 100))):
        writer = MetricsWriter(folder, attempt=attempt)
        for step in steps:
            loss = math.nan if step == 20 else 5 * math.exp(-step / 30)
            writer.log({"loss": loss, "lr": 0.1}, step=step)
        writer.close()
    return folder


def test_in_the_terminal(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["plot", str(run), "loss"]) == ExitCode.DONE
    printed = capsys.readouterr().out
    assert "\x1b" not in printed  # no terminal, no colours
    assert re.search(r"loss, last 0\.18\d+ at 99", printed)
    assert "NaN or infinite 1 time, first at 20" in printed
    assert "10 points run again" in printed
    assert "restart at 50: attempt 2 on n3" in printed


@pytest.mark.parametrize(
    ("name", "magic"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.pdf", b"%PDF")]
)
def test_as_a_picture(run: Path, tmp_path: Path, name: str, magic: bytes) -> None:
    out = tmp_path / name
    words = ["plot", str(run), "loss", "lr", "--compare", str(run), "--out", str(out)]
    assert main.main(words) == ExitCode.DONE
    assert out.read_bytes().startswith(magic)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["./no-such-run"], "is no run folder"),
        (["RUN", "lost"], "There are: loss, lr."),
        (["RUN", "--out", "a.gif"], "End it in .png, .svg, .pdf."),
        (["RUN", "--smooth", "1"], "Use 0 to 0.99."),
        (["."], "is no run folder"),
    ],
)
def test_bad_input_is_one_line(
    run: Path,
    words: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [str(run) if word == "RUN" else word for word in words]
    assert main.main(["plot", *words]) == ExitCode.MENDABLE
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


@given(st.lists(st.floats(-1e9, 1e9), max_size=300), st.integers(4, 40))
def test_thinning_keeps_the_extremes(ys: list[float], most: int) -> None:
    line = Line("a", tuple(map(float, range(len(ys)))), tuple(ys), (), ())
    xs, kept = _thinned(line, most)
    assert len(kept) <= most
    assert xs == sorted(xs)
    if ys:
        assert (min(kept), max(kept)) == (min(ys), max(ys))


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.integers(1, 20))
def test_ticks_are_few_and_inside(low: float, span: float, most: int) -> None:
    ticks = round_ticks(low, low + span, most)
    assert len(ticks) <= most + 1
    slack = span * 1e-6
    assert all(low - slack <= tick <= low + span + slack for tick in ticks)
