from __future__ import annotations

import multiprocessing
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from hpcplat import eventlog
from hpcplat.eventlog import EventKind, RunEvent
from hpcplat.foreign import printable


def test_a_missing_log_has_no_events(tmp_path: Path) -> None:
    assert eventlog.read(tmp_path / "events.jsonl", 7) == ((), 7)


def test_events_are_read_on_from_an_offset(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    first = RunEvent(EventKind.ATTEMPT_STARTED, "began", 1, 1.5, {"a": [1, "é"]})
    second = RunEvent("step", "line\nbreak", 1, 2.5)
    eventlog.append(path, first)
    events, offset = eventlog.read(path)
    assert events == (first,)
    eventlog.append(path, second)
    (found,), end = eventlog.read(path, offset)
    assert (found.what, end) == ("line break", path.stat().st_size)


def test_a_line_that_is_not_whole_yet_is_left(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    event = RunEvent("step", "x", 1, 1.0)
    eventlog.append(path, event)
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:10])
    events, offset = eventlog.read(path)
    assert (events, offset) == ((event,), len(whole))
    path.write_bytes(whole + whole)
    assert eventlog.read(path, offset)[0] == (event,)


def test_what_is_no_event_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"{}\n\xff\n[1]\nnull\n")
    eventlog.append(path, event := RunEvent("step", "x", 1, 1.0))
    assert eventlog.read(path)[0] == (event,)


def test_a_huge_event_is_cut_to_one_write(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    eventlog.append(path, RunEvent("step", "x" * 9_000, 1, 1.0, {"a": "y" * 100_000}))
    (event,) = eventlog.read(path)[0]
    assert (event.what, event.details) == ("x" * 2_000, {})


def _append_many(path: Path, number: int) -> None:
    for place in range(200):
        eventlog.append(path, RunEvent("step", f"{number} {place}" + "x" * 500, 1, 1.0))


def test_processes_append_whole_lines_at_once(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    context = multiprocessing.get_context("spawn")
    many = [context.Process(target=_append_many, args=(path, n)) for n in range(3)]
    for process in many:
        process.start()
    for process in many:
        process.join(60)
        assert process.exitcode == 0
    events, _ = eventlog.read(path)
    assert len(path.read_bytes().splitlines()) == len(events) == 600


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_words_read_back(what: str) -> None:
    event = RunEvent("step", what, 1, 1.0)
    line = eventlog._line(event)
    assert line.count(b"\n") == 1
    assert eventlog._event(line) == replace(event, what=printable(what))
