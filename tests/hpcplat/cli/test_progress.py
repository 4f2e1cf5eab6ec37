"""How far a run is, from the end of its metrics; and what a screen of top shows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from hpcplat.cli.nodes import Use, gpu_marks, legend, use_of
from hpcplat.cli.progress import progress_of, steps_of
from hpcplat.cli.tables import cell_width
from hpcplat.cli.top import screen
from hpcplat.slurm.scheduler import LiveJob
from hpcplat.slurm.states import BaseState, JobState
from hpcplat.tracking.layout import create_next
from hpcplat.tracking.record import Numbers, encode

NOW = 1_800_000_000.0


def run_with(folder: Path, steps: int, seconds_a_step: float) -> Path:
    """Write a run folder whose steps came at an even pace."""
    with open(create_next(folder, 1, "main"), "wb") as file:  # noqa: PTH123 - a descriptor
        for step in range(1, steps + 1):
            values = {"loss": 10 / step, "tokens_per_second": 12_345.0}
            file.write(encode(Numbers(NOW + step * seconds_a_step, step, values)))
    return folder


def test_step_loss_speed_and_time_left(tmp_path: Path) -> None:
    found = progress_of(run_with(tmp_path, 200, 2.0), 1000)
    assert found is not None
    assert (found.step, found.steps, found.share) == (200, 1000, 0.2)
    assert found.loss == pytest.approx(0.05)
    assert found.tokens_per_second == 12_345.0
    assert found.left == timedelta(seconds=1600)


def test_the_loss_is_found_before_what_a_checkpoint_tells(tmp_path: Path) -> None:
    run_with(tmp_path, 20, 2.0)
    file = next((tmp_path / "metrics").rglob("main*"))
    with file.open("ab") as end:
        for values in ({"validation_loss": 3.0}, {"checkpoint_stall_seconds": 0.1}):
            end.write(encode(Numbers(NOW + 41, 20, values)))
    found = progress_of(tmp_path, None)
    assert found is not None
    assert (found.step, found.loss, found.tokens_per_second) == (20, 0.5, 12_345.0)


def test_the_newest_attempt_counts(tmp_path: Path) -> None:
    run_with(tmp_path, 50, 1.0)
    with open(create_next(tmp_path, 2, "main"), "wb") as file:  # noqa: PTH123
        file.write(encode(Numbers(NOW + 100, 41, {"loss": 1.0})))
    found = progress_of(tmp_path, None)
    assert found is not None
    assert (found.step, found.share, found.left) == (41, None, None)


def test_a_folder_that_tells_nothing(tmp_path: Path) -> None:
    assert progress_of(tmp_path, 10) is None
    assert progress_of(tmp_path / "gone", 10) is None


def test_steps_of_a_spec() -> None:
    assert steps_of({"settings": {"steps": 10}}) == 10
    assert steps_of({"settings": {"steps": "many"}}) is None
    assert steps_of({}) is None


def job(number: int, **values: Any) -> dict[str, Any]:  # noqa: ANN401
    return {
        "id": f"{number:016d}",
        "short": f"{number:012d}",
        "name": f"training-a-model-{number}",
        "user": "alice",
        "kind": "train",
        "state": "RUNNING",
        "gpus": 8,
        "reason": "",
        "created_at": datetime.now(UTC).isoformat(),
        "started_at": datetime.now(UTC).isoformat(),
        "ended_at": None,
        **values,
    }


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_a_screen_fits(tmp_path: Path, width: int) -> None:
    progress = progress_of(run_with(tmp_path, 200, 2.0), 1000)
    jobs = [job(n, progress=progress) for n in range(40)]
    look = {"cluster": "c", "gpus": 16, "gpus_used": 8, "nodes": 4, "jobs": jobs}
    lines = screen(look, width, 24, colour=False)
    assert len(lines) <= 24
    assert max(map(cell_width, lines)) <= width
    assert "40 running, 0 waiting" in lines[0] or width < 80
    assert "200/1000 20%" in "\n".join(lines)
    assert lines[-1].startswith("… and ")


def live(user: str, gpus: int, *nodes: str) -> LiveJob:
    now = datetime.now(UTC)
    return LiveJob(
        job_id=1, address="1", name="j", user=user, account="a", partition="p",
        qos="q", state=JobState(BaseState.RUNNING), reason="", comment="",
        nodes=nodes, node_count=len(nodes), cpus=1, gpus=gpus, time_limit=None,
        submitted=now, started=now, ends=None, priority=1, restarts=0,
    )  # fmt: skip


def node(name: str, used: int, **values: Any) -> dict[str, Any]:  # noqa: ANN401
    return {
        "name": name,
        "state": "MIXED",
        "flags": [],
        "gpus": {"h100": 4},
        "gpus_used": {"h100": used},
        **values,
    }


def test_a_picture_of_gpus() -> None:
    used = use_of([live("bob", 4, "n1", "n2"), live("alice", 1, "n1")])
    nodes = [
        node("n1", 3),
        node("n2", 2),
        node("n3", 1),  # somebody whom the list does not tell of
        node("n4", 0, state="DOWN"),
        node("n5", 0, state="IDLE", flags=["DRAIN"]),
    ]
    assert [gpu_marks(one, used) for one in nodes] == [
        "ABB·",
        "BB··",
        "?···",
        "xxxx",
        "xxxx",
    ]
    told = legend(nodes, used)
    assert told.startswith("6 of 12 GPUs free  A alice (1)  B bob (4)")


def test_more_users_than_letters() -> None:
    used = use_of([live(f"user{n:03}", 1, "n1") for n in range(60)])
    assert isinstance(used, Use)
    marks = gpu_marks(node("n1", 60, gpus={"h100": 64}), used)
    assert marks.endswith("?" * 8 + "····")
