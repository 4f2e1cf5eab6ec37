import errno
import logging
import math
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hpcplat.tracking import Distribution, Image, MetricsWriter, appender
from hpcplat.tracking import writer as writer_module
from hpcplat.tracking.layout import media_folder, metrics_files
from hpcplat.tracking.record import (
    Histogram,
    Lost,
    Media,
    Numbers,
    Opened,
    Record,
    Text,
    decode,
)


def records(run: Path) -> list[Record]:
    found = []
    for file in metrics_files(run):
        for line in file.path.read_bytes().splitlines():
            record = decode(line)
            assert record is not None
            found.append(record)
    return found


def test_numbers_are_there_after_close(tmp_path: Path) -> None:
    writer = MetricsWriter(tmp_path, rank=3, attempt=2)
    for step in range(100):
        writer.log({"loss": 1.0 / (step + 1), "tokens": step}, step=step)
    writer.close()
    opened, *rest = records(tmp_path)
    assert isinstance(opened, Opened)
    assert (opened.attempt, opened.source, opened.rank) == (2, "main", 3)
    assert opened.process == os.getpid()
    numbers = [record for record in rest if isinstance(record, Numbers)]
    assert [record.step for record in numbers] == list(range(100))
    assert numbers[3].values == {"loss": 0.25, "tokens": 3.0}
    assert abs(numbers[-1].time - time.time()) < 60
    assert writer.lost == 0


def test_numbers_that_are_not_finite_are_kept(tmp_path: Path) -> None:
    writer = MetricsWriter(tmp_path)
    writer.log({"a": math.nan, "b": math.inf, "c": -math.inf, "d": 1.0}, step=1)
    writer.close()
    last = records(tmp_path)[-1]
    assert isinstance(last, Numbers)
    assert math.isnan(last.values["a"])
    assert (last.values["b"], last.values["c"]) == (math.inf, -math.inf)


def test_every_writer_has_a_file_of_its_own(tmp_path: Path) -> None:
    writers = [MetricsWriter(tmp_path) for _ in range(3)]
    for step, writer in enumerate(writers):
        writer.log({"loss": 0.0}, step=step)
    for writer in writers:
        writer.close()
    assert [file.number for file in metrics_files(tmp_path)] == [0, 1, 2]


def test_texts_distributions_and_images(tmp_path: Path) -> None:
    writer = MetricsWriter(tmp_path)
    pixel = b"\x89PNG\r\n\x1a\n..."
    writer.log(
        {
            "sample": "Once\nupon",
            "weights": Distribution([0.0, 0.5, 1.0, math.nan], bins=2),
            "picture": Image(pixel, caption="a dot"),
            "again": Image(pixel),
        },
        step=5,
    )
    writer.close()
    _, text, histogram, picture, again = records(tmp_path)
    assert isinstance(text, Text)
    assert text.text == "Once\nupon"
    assert isinstance(histogram, Histogram)
    assert (histogram.counts, histogram.low, histogram.high) == ((1, 2), 0.0, 1.0)
    assert histogram.not_finite == 1
    assert isinstance(picture, Media)
    assert isinstance(again, Media)
    assert picture.file == again.file
    assert (media_folder(tmp_path) / picture.file).read_bytes() == pixel


@pytest.mark.parametrize("name", ["", "x" * 251, 3])
def test_names_that_cannot_be_are_counted(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    writer = MetricsWriter(tmp_path)
    for step in range(3):
        writer.log({name: 1.0, "good": 1.0}, step=step)
    writer.close()
    assert writer.lost == 3
    assert len(caplog.records) == 1
    assert sum(isinstance(record, Numbers) for record in records(tmp_path)) == 3


def test_values_that_cannot_be_are_counted(tmp_path: Path) -> None:
    writer = MetricsWriter(tmp_path)
    writer.log({"a": object(), "b": 2.0}, step=1)
    writer.log({"a": 1.0}, step="no step")  # type: ignore[arg-type]
    writer.log(None, step=1)  # type: ignore[arg-type]
    writer.close()
    assert writer.lost == 3
    found = records(tmp_path)
    [numbers] = [record for record in found if isinstance(record, Numbers)]
    assert numbers.values == {"b": 2.0}
    assert [record.count for record in found if isinstance(record, Lost)][-1] == 3


def test_names_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(writer_module, "MAX_NAMES", 10)
    writer = MetricsWriter(tmp_path)
    for step in range(1000):
        writer.log({f"name-{step}": 1.0}, step=step)
    writer.close()
    assert writer.lost == 990
    assert len(caplog.records) == 1


def test_a_folder_that_is_gone_costs_values_not_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(writer_module, "MAX_PENDING", 50)
    run = tmp_path / "run"
    run.mkdir()
    writer = MetricsWriter(run)
    writer.log({"loss": 1.0}, step=0)
    assert writer.flush()
    shutil.rmtree(run)
    for step in range(1, 200):
        writer.log({"loss": 1.0}, step=step)
    assert writer.lost >= 100
    with caplog.at_level(logging.WARNING):
        assert not writer.flush(timeout=0.1)
    assert sum("cannot be written" in record.message for record in caplog.records) == 1
    run.mkdir()  # it comes back: what waited is written, and what was lost is said
    assert writer.flush(timeout=10)
    writer.log({"loss": 1.0}, step=200)
    writer.close()
    found = records(run)
    assert isinstance(found[0], Opened)
    assert any(
        isinstance(record, Lost) and record.count == writer.lost for record in found
    )


def test_a_fork_writes_its_own_file(tmp_path: Path) -> None:
    writer = MetricsWriter(tmp_path)
    writer.log({"loss": 1.0}, step=1)
    assert writer.flush()

    def child() -> None:
        writer.log({"loss": 2.0}, step=2)
        writer.close()

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(20)
    assert process.exitcode == 0
    writer.log({"loss": 3.0}, step=3)
    writer.close()
    steps = [record.step for record in records(tmp_path) if isinstance(record, Numbers)]
    assert steps == [1, 3, 2]


KILLED = """
import sys
from hpcplat.tracking import MetricsWriter
writer = MetricsWriter(sys.argv[1])
step = 0
while True:
    writer.log({"loss": 1.0 / (step + 1)}, step=step)
    step += 1
    if step % 1000 == 0:
        writer.flush()
        print(step, flush=True)
"""


@pytest.mark.parametrize("after", range(5))
def test_kill_9_loses_nothing_that_was_flushed(tmp_path: Path, after: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    flushed = 0
    for _ in range(after + 1):
        flushed = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    rest = process.stdout.read().split()
    process.stdout.close()
    flushed = int(rest[-1]) if rest else flushed
    [file] = metrics_files(tmp_path)
    lines = file.path.read_bytes().split(b"\n")
    found = [decode(line) for line in lines[:-1]]
    steps = [record.step for record in found if isinstance(record, Numbers)]
    assert steps == list(range(len(steps)))
    assert len(steps) >= flushed


def test_the_writer_needs_nothing_but_the_standard_library() -> None:
    code = (
        "import sys; before = set(sys.modules); import hpcplat.tracking;"
        "print(sorted({m.partition('.')[0] for m in set(sys.modules) - before}"
        " - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "['hpcplat']"


def test_what_is_logged_after_the_end_is_not_lost(tmp_path: Path) -> None:
    writer = MetricsWriter(tmp_path)
    for step in range(3):
        writer.log({"loss": 1.0}, step=step)
        writer.close()
        assert writer.flush()
    steps = [record.step for record in records(tmp_path) if isinstance(record, Numbers)]
    assert steps == [0, 1, 2]


@pytest.mark.slow
def test_a_disk_that_was_full_for_a_while_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appender, "RETRY_SECONDS", 0.01)
    chance = random.Random(4)
    write = os.write

    def scarce(handle: int, data: bytes) -> int:
        if chance.random() < 0.5:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(handle, bytes(data)[: chance.randint(1, 40)])

    monkeypatch.setattr(os, "write", scarce)
    writer = MetricsWriter(tmp_path)
    for step in range(200):
        writer.log({"loss": step}, step=step)
    assert writer.flush(60)
    monkeypatch.undo()
    writer.close()
    steps = [record.step for record in records(tmp_path) if isinstance(record, Numbers)]
    assert steps == list(range(200))
    assert writer.lost == 0


def test_a_file_system_that_hangs_holds_no_step_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = threading.Event()
    write = os.write

    def hanging(handle: int, data: bytes) -> int:
        hangs.wait(60)
        return write(handle, data)

    monkeypatch.setattr(os, "write", hanging)
    writer = MetricsWriter(tmp_path)
    for step in range(1000):
        writer.log({"loss": step}, step=step)
    assert not writer.flush(0.05)
    writer.close(timeout=0.05)
    hangs.set()
    assert writer.lost == 0


def test_a_clock_that_jumps_is_not_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = MetricsWriter(tmp_path)
    writer.log({"loss": 1.0}, step=0)
    monkeypatch.setattr(writer_module, "now", lambda: 0.0)
    writer.log({"loss": 1.0}, step=1)
    writer.close()
    first, second = (r for r in records(tmp_path) if isinstance(r, Numbers))
    assert 0 <= second.time - first.time < 60
