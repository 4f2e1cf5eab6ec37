"""An unmodified TensorBoard script, watched from outside."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcplat.tracking.curves import history
from hpcplat.tracking.layout import metrics_files
from hpcplat.tracking.reader import read_run
from hpcplat.tracking.record import Histogram, Media, Numbers, Text
from hpcplat.tracking.tensorboard_files import TensorBoardFollower
from hpcplat.tracking.tensorboard_search import EventFile, EventFileSearch
from hpcplat.tracking.tfevents import NoEventFileError, TensorBoardValue, read_events

pytestmark = pytest.mark.slow

SCRIPT = """
import sys, numpy
from torch.utils.tensorboard import SummaryWriter

writer = SummaryWriter(sys.argv[1])
for step in range(50):
    writer.add_scalar("loss/train", 1 / (step + 1), step)
    writer.add_scalar("new", step, step, new_style=True)
writer.add_scalars("both", {"a": 1.0, "b": 2.0}, 3)
writer.add_text("note", "hello", 1)
writer.add_histogram("weights", numpy.arange(100.0), 2)
writer.add_image("picture", numpy.zeros((3, 4, 5), numpy.uint8), 2)
writer.flush()
print("written", flush=True)
sys.stdin.readline()
writer.add_scalar("loss/train", 0.0, 50)
writer.close()
"""


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the script wrote, and that was found by its open files."""
    folder = tmp_path_factory.mktemp("events")
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"RANK": "3", "PATH": "/usr/bin:/bin"},
    ) as script:
        assert script.stdout is not None
        script.stdout.readline()
        search = EventFileSearch(os.getpid())
        search.note_processes()
        files = list(search.find())
        assert {file.rank for file in files} == {3}
        assert {file.path.parent for file in files} == {
            folder,
            folder / "both_a",
            folder / "both_b",
        }
        script.communicate(b"\n", timeout=60)
        assert script.returncode == 0
    return folder


def event_file(folder: Path) -> Path:
    [found] = folder.glob("*tfevents*")
    return found


def test_values_of_all_kinds_are_read(events: Path) -> None:
    values, end = read_events(event_file(events))
    assert end == event_file(events).stat().st_size
    by_name: dict[str, list[TensorBoardValue]] = {}
    for value in values:
        by_name.setdefault(value.name, []).append(value)
    losses = by_name["loss/train"]
    assert [value.step for value in losses] == list(range(51))
    assert losses[3].value == 0.25
    assert [value.value for value in by_name["new"]][7] == 7.0
    assert by_name["note/text_summary"][0].value == "hello"
    assert set(by_name) >= {"weights", "picture"}


def test_any_cut_of_a_growing_file_gives_each_value_once(
    events: Path, tmp_path: Path
) -> None:
    content = event_file(events).read_bytes()
    whole, _ = read_events(event_file(events))
    path = tmp_path / "growing.tfevents.1"
    seen: list[TensorBoardValue] = []
    offset = 0
    for cut in [*range(0, len(content), 173), len(content)]:
        path.write_bytes(content[:cut])
        values, offset = read_events(path, offset)
        seen += values
    assert [(v.name, v.step) for v in seen] == [(v.name, v.step) for v in whole]


def test_they_become_the_run_s_own_curves(events: Path, tmp_path: Path) -> None:
    follower = TensorBoardFollower(tmp_path, 1)
    for path in sorted(events.rglob("*tfevents*"), key=lambda path: len(path.parts)):
        follower.see(EventFile(path, 0))
    follower.look()
    follower.close()
    found = history(tmp_path)
    losses = found.curve("loss/train").points
    assert [(p.step, p.value) for p in losses][:2] == [(0, 1.0), (1, 0.5)]
    assert found.curve("both_a/both").points[0].value == 1.0
    assert found.lost == 0
    records = [entry.record for entry in read_run(tmp_path)]
    [histogram] = [record for record in records if isinstance(record, Histogram)]
    assert sum(histogram.counts) == 100
    assert sum(isinstance(record, Media) for record in records) == 1
    assert [record.text for record in records if isinstance(record, Text)] == ["hello"]


def test_they_are_kept_apart_where_the_run_logs_itself(
    events: Path, tmp_path: Path, log_numbers: Callable[[Path], None]
) -> None:
    log_numbers(tmp_path)
    follower = TensorBoardFollower(tmp_path, 1)
    follower.see(EventFile(event_file(events), 0))
    follower.see(EventFile(event_file(events / "both_a"), 3))
    follower.close()
    sources = {file.source for file in metrics_files(tmp_path)}
    assert sources == {"main", "tensorboard", "rank-3"}


@pytest.fixture
def log_numbers() -> Callable[[Path], None]:
    def log(run: Path) -> None:
        from hpcplat.tracking import MetricsWriter

        writer = MetricsWriter(run)
        writer.log({"loss": 1.0}, step=0)
        writer.close()

    return log


def test_what_is_no_event_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "x.tfevents.1"
    path.write_bytes(b"\xff" * 100)
    with pytest.raises(NoEventFileError):
        read_events(path)
    follower = TensorBoardFollower(tmp_path, 1)
    follower.see(EventFile(path, 0))
    follower.look()
    follower.close()
    assert not any(isinstance(e.record, Numbers) for e in read_run(tmp_path))
