"""Failures that follow a node, or a rank, on the real Slurm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hpcplat.eventlog import EventKind

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

Submit = Callable[..., Any]  # conftest.Submitter
MACHINES = {"nodes": 2, "spare_nodes": 1}
AGAIN = {"requeue": True, "max_failures": 3}


def test_a_node_on_which_ranks_fail_is_left_out(submit: Submit) -> None:
    """Both starts fail on the second node; on the spare the job ends well."""
    script = (
        'bad=bad-node; [ "$RANK" = 1 ] && [ ! -e $bad ] && echo "$SLURMD_NODENAME" >$bad\n'
        '[ "$RANK" = 1 ] && [ "$SLURMD_NODENAME" = "$(cat $bad)" ] && exit 9\n'
        "sleep 1; exit 0\n"
    )
    job = submit(script, resources=MACHINES, recovery=AGAIN).wait()
    assert job.state() == "COMPLETED", job.verdict()
    (suspected,) = job.events(EventKind.NODE_SUSPECTED)
    starts = [e.details["nodes"] for e in job.events(EventKind.RANKS_STARTED)]
    assert suspected.details["node"] == starts[0][1] == starts[1][1]
    assert starts[2] == [starts[0][0], starts[2][1]]
    assert starts[2][1] != starts[0][1]


def test_a_rank_that_fails_on_any_node_is_the_codes_fault(submit: Submit) -> None:
    job = submit(
        '[ "$RANK" = 1 ] && exit 9; sleep 60', resources=MACHINES, recovery=AGAIN
    ).wait()
    assert (job.state(), job.exit_code()) == ("FAILED", 9)
    used = {e.details["nodes"][1] for e in job.events(EventKind.RANKS_STARTED)}
    reason = job.verdict()["reason"]
    assert "4 failures in a row, each time rank 1 on " in reason
    assert all(node in reason for node in used)
    assert len(used) == 2
    assert "not a node, but the code or the data" in reason
    began = [event.time for event in job.events(EventKind.RANKS_STARTED)]
    failed = [event.time for event in job.events(EventKind.RANK_FAILED)]
    pauses = [again - end for again, end in zip(began[1:], failed, strict=False)]
    assert pauses[1] > 0.9  # none at first, then longer and longer
    assert pauses[2] > 1.9
