"""squeue's rows: any name and comment come back, and nothing is read by halves."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcplat.slurm import sinfo, squeue
from hpcplat.slurm.answers import UnreadableError, new_separator

SEPARATOR = new_separator()
anything = st.text(max_size=30).filter(lambda text: text != "(null)")


def row(**fields: str) -> str:
    base = dict.fromkeys(squeue.COLUMNS, "") | {
        "JobID": "7",
        "JobArrayID": "7",
        "ArrayJobID": "7",
        "ArrayTaskID": "N/A",
        "UserName": "alice",
        "State": "RUNNING",
        "Reason": "None",
        "NodeList": "n[1-2]",
        "BatchHost": "n1",
        "NumNodes": "2",
        "NumCPUs": "8",
        "tres-alloc": "cpu=8,mem=800M,node=2",
        "tres-per-node": "N/A",
        "tres-per-job": "N/A",
        "TimeLimit": "1-00:00:00",
        "SubmitTime": "2026-01-01T00:00:00",
        "StartTime": "2026-01-01T00:00:01",
        "EndTime": "2026-01-02T00:00:01",
        "PriorityLong": "4294901759",
        "RestartCnt": "0",
        "Comment": "(null)",
    }
    named = base | {name.replace("_", "-"): value for name, value in fields.items()}
    return "".join(f"{value}{SEPARATOR}" for value in named.values()) + "\n"


@given(st.lists(st.tuples(anything, anything), max_size=4))
def test_any_name_and_comment_come_back(pairs: list[tuple[str, str]]) -> None:
    text = "".join(row(Name=name, Comment=comment) for name, comment in pairs)
    jobs = squeue.parse(text, SEPARATOR)
    assert [(job.name, job.comment) for job in jobs] == pairs
    assert all(job.nodes == ("n1", "n2") for job in jobs)


@pytest.mark.parametrize(
    ("fields", "gpus"),
    [
        ({"tres_alloc": "cpu=8,gres/gpu=8,gres/gpu:h100=8"}, 8),
        ({"tres_per_node": "gres:gpu:h100:4"}, 8),
        ({"tres_per_node": "gres/gpu:4(S:0-1)"}, 8),
        ({"tres_per_job": "gres:gpu:3"}, 3),
        ({}, 0),
    ],
)
def test_gpus_are_counted_though_the_site_does_not_track_them(
    fields: dict[str, str], gpus: int
) -> None:
    assert squeue.parse(row(**fields), SEPARATOR)[0].gpus == gpus


def test_limits_and_times_that_are_not_set() -> None:
    text = row(State="PENDING", TimeLimit="UNLIMITED", StartTime="N/A", EndTime="NONE")
    job = squeue.parse(text, SEPARATOR)[0]
    assert (job.time_limit, job.started, job.expected_start, job.ends) == (None,) * 4
    limited = squeue.parse(row(), SEPARATOR)[0]
    assert limited.time_limit == timedelta(days=1)


@pytest.mark.parametrize(
    "fields",
    [
        {"State": "BRAND_NEW"},
        {"JobID": "seven"},
        {"NumNodes": "2-4"},
        {"NumCPUs": ""},
        {"SubmitTime": "N/A"},
        {"StartTime": "Ystday 03:31"},
        {"NodeList": "n[1-"},
        {"tres_alloc": "cpu"},
        {"TimeLimit": "soon"},
        {"ArrayTaskID": "3"},
    ],
)
def test_a_row_that_cannot_be_read_fails_the_answer(fields: dict[str, str]) -> None:
    with pytest.raises(UnreadableError) as caught:
        squeue.parse(row() + row(**fields), SEPARATOR)
    assert "\n" not in str(caught.value)


def node_row(**fields: str) -> str:
    base = dict.fromkeys(sinfo.COLUMNS, "") | {
        "NodeList": "n1",
        "PartitionName": "gpu",
        "StateComplete": "idle",
        "Gres": "gpu:h100:4(S:0-1)",
        "GresUsed": "gpu:h100:0(IDX:N/A)",
        "CPUsState": "0/8/0/8",
        "Memory": "4000",
        "AllocMem": "0",
        "Features": "(null)",
        "Reason": "none",
    }
    return "".join(f"{value}{SEPARATOR}" for value in (base | fields).values()) + "\n"


def test_a_node_in_two_partitions_is_one_node() -> None:
    text = node_row() + node_row(PartitionName="debug")
    (node,) = sinfo.parse(text, SEPARATOR)
    assert node.partitions == ("gpu", "debug")
    assert (node.gpus, node.gpus_used) == ({"h100": 4}, {})


@pytest.mark.parametrize(
    ("word", "state", "flags"),
    [
        ("idle", "IDLE", set()),
        ("down+not_responding", "DOWN", {"NOT_RESPONDING"}),
        ("mixed+drain+maintenance", "MIXED", {"DRAIN", "MAINTENANCE"}),
    ],
)
def test_node_states(word: str, state: str, flags: set[str]) -> None:
    (node,) = sinfo.parse(node_row(StateComplete=word), SEPARATOR)
    assert (node.state, node.flags) == (state, frozenset(flags))


@pytest.mark.parametrize(
    "fields",
    [
        {"CPUsState": "8"},
        {"StateComplete": ""},
        {"Memory": "N/A"},
        {"Gres": "gpu:h100:many:4:4"},
    ],
)
def test_a_node_that_cannot_be_read_fails_the_answer(fields: dict[str, str]) -> None:
    with pytest.raises(UnreadableError):
        sinfo.parse(node_row() + node_row(**fields), SEPARATOR)
