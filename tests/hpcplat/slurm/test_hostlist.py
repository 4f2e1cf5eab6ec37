"""Hostlists: right values, round trips, and lists that would fill the memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcplat.errors import InvalidError
from hpcplat.slurm.hostlist import compress, expand

node_names = st.builds(
    lambda stem, number, zeros: f"{stem}{str(number).zfill(zeros)}",
    st.sampled_from(["n", "gpu-a", "rack1-node", "a.b", "7x"]),
    st.integers(0, 120),
    st.integers(1, 4),
)


@pytest.mark.parametrize(
    ("hostlist", "names"),
    [
        ("", ()),
        ("n1", ("n1",)),
        ("n[1-3]", ("n1", "n2", "n3")),
        (
            "n[01-03,7],gpu-a[1-2]-ib0",
            ("n01", "n02", "n03", "n7", "gpu-a1-ib0", "gpu-a2-ib0"),
        ),
        ("gpu-a[05-06]", ("gpu-a05", "gpu-a06")),
        ("n[098-101]", ("n098", "n099", "n100", "n101")),
        ("n[9-11]", ("n9", "n10", "n11")),
        ("r[1-2]n[1-2]", ("r1n1", "r1n2", "r2n1", "r2n2")),
        ("n[2,2]", ("n2", "n2")),
        ("[1-2]x", ("1x", "2x")),
        ("login.site.org", ("login.site.org",)),
    ],
)
def test_expand(hostlist: str, names: tuple[str, ...]) -> None:
    assert expand(hostlist) == names


@pytest.mark.parametrize(
    "hostlist",
    [
        "n[",
        "n]",
        "n[1-",
        "n[]",
        "n[1,]",
        "n[3-1]",
        "n[a-b]",
        "n[1-2-3]",
        "n[[1]]",
        ",n1",
        "n1,",
        "n1,,n2",
        "n 1",
        "n1\n",
        "(null)",
        "n[٣]",
    ],
)
def test_what_is_no_hostlist_is_refused(hostlist: str) -> None:
    with pytest.raises(InvalidError, match="not a hostlist"):
        expand(hostlist)


@pytest.mark.parametrize(
    "bomb",
    [
        "n[1-99999999999999]",
        "a[1-999]b[1-999]c[1-999]",
        "n[" + ",".join(["1-60000"] * 2) + "]",
        "x[0-9]" + "[0-9]" * 500,
        "n[1-60000],m[1-60000]",
    ],
)
def test_a_bomb_is_refused_before_it_goes_off(bomb: str) -> None:
    with pytest.raises(InvalidError, match="more than 65536 nodes"):
        expand(bomb)


@pytest.mark.parametrize(
    ("names", "hostlist"),
    [
        ([], ""),
        (["n1"], "n1"),
        (["n1", "n2", "n3", "n5"], "n[1-3,5]"),
        (["n09", "n10"], "n[09-10]"),
        (["n9", "n10"], "n[9-10]"),
        (["n2", "n1"], "n[2,1]"),
        (["n1", "login", "n2"], "n1,login,n2"),
        (["a-ib0", "b-ib0"], "a-ib0,b-ib0"),
        (["n099", "n100", "n0101"], "n[099-100,0101]"),
    ],
)
def test_compress(names: list[str], hostlist: str) -> None:
    assert compress(names) == hostlist


@pytest.mark.parametrize("name", ["", "n[1]", "n,m", "n m", "n\n", "é"])
def test_what_is_no_node_name_is_not_compressed(name: str) -> None:
    with pytest.raises(InvalidError):
        compress([name])


@given(st.lists(node_names, max_size=60))
def test_names_survive_the_round_trip(names: list[str]) -> None:
    assert list(expand(compress(names))) == names


@given(st.integers(0, 500), st.integers(1, 50), st.integers(1, 4))
def test_a_run_of_names_takes_one_range(low: int, count: int, zeros: int) -> None:
    names = [f"n{str(low + step).zfill(zeros)}" for step in range(count)]
    assert compress(names).count("-") <= 1
    assert list(expand(compress(names))) == names


@given(st.text(alphabet="n1[]-,09 ", max_size=30))
def test_any_text_expands_or_is_refused(text: str) -> None:
    try:
        names = expand(text)
    except InvalidError:
        return
    assert all(names)
