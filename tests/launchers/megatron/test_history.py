"""How often failures come, by what was seen and by what is usual elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcplat import eventlog
from hpcplat.allocation import RankPlacement, placement_outside
from hpcplat.eventlog import EventKind, RunEvent
from hpcplat.launchplan import LaunchPlan
from hpcplat.runfolder import RunFolder
from launchers.megatron.cadence import Cadence
from launchers.megatron.history import GPU_HOURS, RECOVERY, History, history_of


@pytest.fixture
def place(tmp_path: Path) -> RankPlacement:
    return placement_outside(RunFolder(tmp_path), {"WORLD_SIZE": "4"})


def test_what_is_usual_elsewhere_holds_until_more_is_seen(place: RankPlacement) -> None:
    assert history_of(place) == History()
    assert History().between(1) == GPU_HOURS * 3600
    assert History().recovery == RECOVERY
    assert History(9, 4 * GPU_HOURS).between(1) == GPU_HOURS * 3600 / 2
    assert History(9, 4 * GPU_HOURS).between(1000) == GPU_HOURS * 3.6 / 2
    assert History(recoveries=(20.0, 10.0)).recovery == (RECOVERY + 30) / 3


def test_the_service_counts_nodes_and_the_job_its_own_failures(
    place: RankPlacement,
) -> None:
    folder = place.run_folder
    plan = LaunchPlan("k", "n", 2, 2, ("x",), node_failures=3, node_hours=1000.0)
    folder.plan.write_text(plan.to_json())
    for kind, at, details in (
        (EventKind.ATTEMPT_STARTED, 0.0, {}),
        (EventKind.STEPPING, 10.0, {"at": 10.0, "step": 1}),
        (EventKind.ATTEMPT_STARTED, 3600.0, {"last_at": 3590.0, "last_step": 9}),
        (EventKind.RANKS_STARTED, 3605.0, {}),
        ("resumed", 3610.0, {"step": 8}),
        (EventKind.STEPPING, 3612.0, {"at": 3612.0, "step": 9}),
        (EventKind.ATTEMPT_ENDED, 7200.0, {}),
    ):
        event = RunEvent(kind, "x", 1, time=at, details=details)
        eventlog.append(folder.events, event)
    found = history_of(place)
    assert found.failures == 3 + 1
    assert found.rank_hours == pytest.approx(1000 * 2 + 2 * 4)
    assert found.recoveries == pytest.approx((22.0,))
    said = str(Cadence("auto", 4, found))
    assert "4 failures in 2008 hours of ranks and 1 recoveries from disk" in said
