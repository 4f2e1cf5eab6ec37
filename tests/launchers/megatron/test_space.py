"""A full or missing folder of checkpoints holds a training up, and does not end it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

pytest.importorskip("megatron.core")

from launchers.megatron.space import Space


def test_what_keeps_a_checkpoint_from_being_written(tmp_path: Path) -> None:
    assert Space(tmp_path / "checkpoints", 1000).problem() == ""
    assert list((tmp_path / "checkpoints").iterdir()) == []
    assert "GB left" in Space(tmp_path, 1 << 60).problem()
    (tmp_path / "file").write_text("")
    assert "can't be written: File exists" in Space(tmp_path / "file", 1).problem()


def test_a_run_waits_until_there_is_room_again(tmp_path: Path) -> None:
    gone, told = tmp_path / "mount", list[tuple[str, str]]()
    gone.write_text("in the way")
    threading.Timer(0.5, gone.unlink).start()
    space = Space(gone / "checkpoints", 1000)
    waited = space.wait(lambda kind, what: told.append((kind, what)), lambda: False)
    assert waited > 0.4
    assert [kind for kind, _ in told] == ["paused", "goes-on"]
    assert "waits for room" in told[0][1]
    assert space.wait(lambda *_: told.clear(), lambda: False) == 0
    assert len(told) == 2


def test_who_is_to_stop_waits_no_longer(tmp_path: Path) -> None:
    space, told = Space(tmp_path, 1 << 60), list[str]()
    space.wait(lambda kind, _: told.append(kind), lambda: True)
    assert told == ["paused", "goes-on"]
