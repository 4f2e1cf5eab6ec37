"""What a cluster should be: refused where it cannot be right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcplat.cluster.spec import (
    ClusterSpec,
    NodeGroup,
    default_folder,
    parse_groups,
    plain_path,
)
from hpcplat.errors import InvalidError


def test_default_is_four_nodes_and_a_spare() -> None:
    nodes = ClusterSpec().nodes
    assert [node.name for node in nodes] == ["n1", "n2", "n3", "n4", "n5"]
    assert [node.is_spare for node in nodes] == [False] * 4 + [True]
    assert {(node.gpu_type, node.gpus) for node in nodes} == {("h100", 4)}


def test_spares_are_like_the_first_group() -> None:
    groups = (NodeGroup(1, "a100", 8), NodeGroup(1, "h100", 4))
    nodes = ClusterSpec(groups=groups, spares=2).nodes
    assert [(node.gpu_type, node.gpus) for node in nodes] == [
        ("a100", 8),
        ("h100", 4),
        ("a100", 8),
        ("a100", 8),
    ]


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("4", [NodeGroup(4, "h100", 2)]),
        ("4:a100x8", [NodeGroup(4, "a100", 8)]),
        ("4:a100", [NodeGroup(4, "a100", 2)]),
        ("3:mi300x", [NodeGroup(3, "mi300x", 2)]),
        ("3:mi300xx8", [NodeGroup(3, "mi300x", 8)]),
        ("1, 2:l40sx1", [NodeGroup(1, "h100", 2), NodeGroup(2, "l40s", 1)]),
    ],
)
def test_groups_are_read(text: str, groups: list[NodeGroup]) -> None:
    assert list(parse_groups(text, gpu_type="h100", gpus=2)) == groups


@pytest.mark.parametrize("text", ["", "x", "4:", "4x8", "-1", "0", "4:H100x4", "4,,4"])
def test_what_is_no_group_is_refused(text: str) -> None:
    with pytest.raises(InvalidError):
        parse_groups(text, gpu_type="h100", gpus=4)


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"name": "Bad Name"}, "name"),
        ({"groups": ()}, "no nodes"),
        ({"spares": -1}, "spares"),
        ({"groups": (NodeGroup(99),), "spares": 2}, "101"),
        ({"partition": "a,b"}, "partition"),
        ({"account": ""}, "account"),
        ({"settings": {"SlurmdTimeout": "5\nSlurmUser=x"}}, "slurm.conf"),
        ({"settings": {"Slurmd Timeout": "5"}}, "slurm.conf"),
        ({"settings": {"ClusterName": "other"}}, "not yours"),
        ({"folder": Path("/tmp/a b")}, "characters"),
        ({"requeue_delay": 1}, "requeue delay"),
        ({"cpus_per_node": 0}, "CPUs"),
    ],
)
def test_what_cannot_be_right_is_refused(fields: dict[str, Any], word: str) -> None:
    with pytest.raises(InvalidError, match=word):
        ClusterSpec(**fields)


def test_equal_specs_are_equal() -> None:
    one = ClusterSpec(settings={"KillWait": "1"})
    assert one == ClusterSpec(settings={"KillWait": "1"})
    assert one != ClusterSpec(settings={"KillWait": "2"})


def test_folder_comes_from_the_name_and_is_absolute() -> None:
    assert ClusterSpec(name="other").folder == default_folder("other")
    assert plain_path(Path("x")).is_absolute()
