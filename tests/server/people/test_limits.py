"""Quotas in our words and Slurm's, and what differs, both ways."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hpcplat.errors import InvalidError
from hpcplat.slurm.scheduler import Association
from server.people import limits
from server.people.limits import Wanted


def line(account: str, user: str = "", share: str = "1", **set_: str) -> Association:
    return Association("c", account, user, "", share, set_, (), "", "root")


ALL = {
    "gpus": "16",
    "gpus:h100": "8",
    "gpu_hours": "100",
    "nodes": "4",
    "running_jobs": "5",
    "submitted_jobs": "50",
    "longest_time": "1-00:00:00",
    "share": "10",
}


@pytest.mark.parametrize("of_member", [True, False])
def test_our_words_come_back_from_slurms(of_member: bool) -> None:
    slurms = limits.in_slurms(ALL, of_member=of_member)
    assert limits.in_ours(slurms, of_member=of_member) == ALL
    assert slurms["GrpTRESMins:gres/gpu"] == "6000"
    assert ("MaxJobs" in slurms) is of_member


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gpus", "-1"),
        ("gpus", "4;rm"),
        ("gpus", "4 set Fairshare=99"),
        ("gpus", ""),
        ("gpu", "4"),
        ("gpus:", "4"),
        ("gpus:h100,mem=1", "4"),
        ("longest_time", "for ever"),
        ("AdminLevel", "Admin"),
        ("qos", ""),
        ("qos", "a b"),
        ("qos", "a,AdminLevel=Admin"),
    ],
)
def test_what_is_no_quota_is_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidError):
        limits.checked({name: value})


@pytest.mark.parametrize(
    ("child", "over"),
    [
        ({"gpus": "9"}, "gpus"),
        ({"gpus": "8"}, ""),
        ({"gpus": "10"}, "gpus"),
        ({"longest_time": "2-00:00:00"}, "longest_time"),
        ({"longest_time": "23:00:00"}, ""),
        ({"share": "99"}, ""),
        ({"nodes": "99"}, ""),
        ({"qos": "normal,spot"}, ""),
        ({"qos": "prod"}, "qos"),
    ],
)
def test_more_than_the_parent_has(child: dict[str, str], over: str) -> None:
    parent = {"gpus": "8", "longest_time": "1-00:00:00", "share": "1"}
    parent |= {"qos": "spot,normal,high"}
    assert limits.above(child, parent) == over


def test_what_agrees_does_not_differ() -> None:
    wanted = [
        Wanted("nlp", limits=limits.in_slurms({"gpus": "8"}, of_member=False)),
        Wanted("nlp", "alice"),
    ]
    there = [line("root"), line("nlp", GrpTRES="gres/gpu=8"), line("nlp", "alice")]
    assert limits.differences(wanted, there, "c") == []


def test_what_slurm_lacks_is_made_accounts_first() -> None:
    wanted = [Wanted("nlp", "alice"), Wanted("nlp", parent="ai")]
    found = limits.differences(wanted, [], "c")
    assert [each.argv for each in found] == [
        ("sacctmgr", "-i", "add", "account", "nlp", "cluster=c", "parent=ai"),
        ("sacctmgr", "-i", "add", "user", "alice", "account=nlp", "cluster=c"),
    ]


def test_what_only_slurm_has_is_told_and_an_account_never_removed() -> None:
    there = [line("root", "root"), line("nlp"), line("nlp", "bob"), line("old")]
    found = limits.differences([Wanted("nlp")], there, "c")
    assert [(each.what, bool(each.argv)) for each in found] == [
        ("bob is in account nlp and no member", True),
        ("account old is no workspace", False),
    ]
    assert found[0].argv == (
        *("sacctmgr", "-i", "delete", "user", "where", "name=bob"),
        *("account=nlp", "cluster=c"),
    )


def test_limits_differ_both_ways_each_by_itself() -> None:
    ours = {"GrpTRES:gres/gpu": "8", "Fairshare": "5"}
    there = [line("nlp", GrpTRES="gres/gpu=4,node=2", GrpJobs="3")]
    found = limits.differences([Wanted("nlp", limits=ours)], there, "c")
    assert {each.what: (each.ours, each.slurms, each.argv[-1]) for each in found} == {
        "GrpTRES:gres/gpu of nlp": ("8", "4", "GrpTRES=gres/gpu=8"),
        "GrpTRES:node of nlp": ("", "2", "GrpTRES=node=-1"),
        "GrpJobs of nlp": ("", "3", "GrpJobs=-1"),
        "Fairshare of nlp": ("5", "", "Fairshare=5"),
    }


QOS_SET = ("set", "DefaultQOS=spot", "QOS=spot,normal")


@pytest.mark.parametrize(
    ("asked", "there", "words"),
    [
        ("spot,normal", ("normal", "spot"), None),  # the order is no difference
        ("spot,normal", ("normal",), QOS_SET),
        ("", ("normal", "prod"), None),  # what nobody named is left as it is
    ],
)
def test_the_qos_to_choose_from_are_set_where_they_are_named(
    asked: str, there: tuple[str, ...], words: tuple[str, ...] | None
) -> None:
    ours = limits.in_slurms({"qos": asked} if asked else {}, of_member=False)
    own = replace(line("nlp"), qos=there, default_qos="normal")
    found = limits.differences([Wanted("nlp", limits=ours)], [own], "c")
    assert [each.argv[-3:] for each in found] == ([words] if words else [])


def test_a_line_without_a_quota_of_ours_is_left_alone() -> None:
    there = [line("nlp", GrpTRES="gres/gpu=4")]
    assert limits.differences([Wanted("nlp")], there, "c") == []
