"""Changes through sacctmgr: the very words, and names that could steer it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from hpcplat.errors import InvalidError
from hpcplat.slurm import sacctmgr_writes as writes


def test_the_words_for_an_account_and_for_a_user_in_it() -> None:
    limits = {"GrpTRES:gres/gpu": "8", "MaxSubmit": "9", "Fairshare": "3"}
    assert writes.argv_set("nlp", "", "c", limits) == [
        *("sacctmgr", "-i", "modify", "account", "where", "name=nlp", "cluster=c"),
        *("set", "Fairshare=3", "GrpTRES=gres/gpu=8", "MaxSubmitJobs=9"),
    ]
    assert writes.argv_set("nlp", "alice", "c", {"MaxWall": "1-00:00:00"}) == [
        *("sacctmgr", "-i", "modify", "user", "where", "name=alice", "account=nlp"),
        *("cluster=c", "set", "MaxWall=1-00:00:00"),
    ]


@pytest.mark.parametrize(
    "name", ["", "-i", "a,b", "a b", "a=b", "where", "ä", "a\n", "x" * 64, "a'b"]
)
def test_names_that_steer_sacctmgr_are_refused(name: str) -> None:
    if name == "where":  # a plain word: after name= it is a name
        assert "name=where" in writes.argv_set(name, "", "c", {})
        return
    makes: list[Callable[[], Sequence[str]]] = [
        lambda: writes.argv_add_user(name, "nlp", "c"),
        lambda: writes.argv_add_account(name, "", "c"),
        lambda: writes.argv_remove_user("alice", name, "c"),
        lambda: writes.argv_set(name, "", "c", {}),
    ]
    for make in makes:
        with pytest.raises(InvalidError):
            make()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("AdminLevel", "Admin"),
        ("GrpTRES", "gres/gpu=4"),
        ("GrpTRES:gres/gpu", "4,cpu=1"),
        ("GrpTRES:a=1,b", "4"),
        ("GrpJobs:x", "4"),
        ("MaxWall", "1 set AdminLevel=Admin"),
    ],
)
def test_only_known_limits_are_set(key: str, value: str) -> None:
    with pytest.raises(InvalidError):
        writes.argv_set("nlp", "", "c", {key: value})
