"""Trackable resources: right values, round trips, refusals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcplat.errors import InvalidError
from hpcplat.slurm.tres import gpu_count, gpus_by_type, parse_tres


def test_a_whole_list() -> None:
    text = "cpu=4,mem=800M,node=2,billing=4,gres/gpu=4,gres/gpu:h100=4,fs/disk=0"
    assert parse_tres(text) == {
        "cpu": 4,
        "mem": 800,
        "node": 2,
        "billing": 4,
        "gres/gpu": 4,
        "gres/gpu:h100": 4,
        "fs/disk": 0,
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("(null)", {}),
        ("N/A", {}),
        ("mem=7.50G", {"mem": 7680}),
        ("mem=1T", {"mem": 1048576}),
        ("mem=28000", {"mem": 28000}),
        ("cpu=2K", {"cpu": 2048}),
        ("license/matlab=3", {"license/matlab": 3}),
        ("gres/gpu:1g.10gb=7", {"gres/gpu:1g.10gb": 7}),
    ],
)
def test_spellings(text: str, expected: dict[str, int]) -> None:
    assert parse_tres(text) == expected


@pytest.mark.parametrize(
    "text", ["cpu", "cpu=", "=4", "cpu=4,,mem=1M", "cpu=4,cpu=5", "cpu=-1", "cpu=N(4)"]
)
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(InvalidError):
        parse_tres(text)


@pytest.mark.parametrize(
    ("text", "by_type"),
    [
        ("cpu=1", {}),
        ("gres/gpu=4", {"": 4}),
        ("gres/gpu=4,gres/gpu:h100=4", {"h100": 4}),
        ("gres/gpu=6,gres/gpu:h100=4", {"h100": 4, "": 2}),
        ("gres/gpu:a100=1,gres/gpu:h100=2", {"a100": 1, "h100": 2}),
        ("gres/gpu=8,gres/gpu:a100=8,gres/gpu:h100=0", {"a100": 8}),
        ("gres/gpumem=4,gres/gpuutil=3", {}),
    ],
)
def test_gpus_are_counted_once(text: str, by_type: dict[str, int]) -> None:
    assert gpus_by_type(parse_tres(text)) == by_type
    assert gpu_count(parse_tres(text)) == sum(by_type.values())


@given(
    st.dictionaries(
        st.sampled_from(["cpu", "node", "billing", "gres/gpu", "gres/gpu:a100", "mem"]),
        st.integers(0, 10**9),
    )
)
def test_counts_survive_the_round_trip(counts: dict[str, int]) -> None:
    text = ",".join(f"{name}={count}" for name, count in counts.items())
    assert parse_tres(text) == counts
