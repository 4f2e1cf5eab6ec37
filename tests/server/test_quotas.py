"""Slurm's limits as rules: levels of the tree, inheritance, QOS, use, and words."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

import pytest

from hpcplat.errors import UnavailableError
from hpcplat.slurm.scheduler import Association, LiveJob, Qos, Share
from hpcplat.slurm.states import BaseState
from server import quotas
from server.quotabook import QuotaBook, enforced_by
from server.quotas import Asked, Book, book_of
from server.site import Site
from tests.server.fakes import PARTITION, FakeSlurm, live_job

ASKED = Asked("alice", "nlp", "gpu", gpus=4, gpu_type="h100", time=timedelta(hours=1))


def line(account: str, user: str = "", parent: str = "", **limits: str) -> Association:
    return Association(
        cluster="c",
        account=account,
        user=user,
        partition="",
        fair_share="1",
        limits=limits,
        qos=("normal", "spot") if not user else (),
        default_qos="normal" if not user else "",
        parent=parent,
    )


def qos(name: str, **limits: str) -> Qos:
    return Qos(name, 0, (), "cluster", frozenset(), limits)


def running(user: str = "bob", account: str = "nlp", gpus: int = 4) -> LiveJob:
    return live_job(
        1, BaseState.RUNNING, user=user, account=account, gpus=gpus, nodes=("n1",)
    )


def book(
    *lines: Association, jobs: tuple[LiveJob, ...] = (), enforced: str = "limits,qos"
) -> Book:
    every = {(each.account, each.user): each for each in lines}
    for each in (
        line("root"),
        line("ai", parent="root"),
        line("nlp", parent="ai"),
        line("nlp", "alice"),
    ):
        every.setdefault((each.account, each.user), each)
    return book_of(
        list(every.values()),
        [qos("normal"), qos("spot")],
        [PARTITION],
        (),
        jobs,
        {"n1": "h100"},
        frozenset(enforced.split(",")),
    )


def test_without_limits_nothing_is_met() -> None:
    assert quotas.met(book(), ASKED) == []


@pytest.mark.parametrize(
    ("where", "owner"),
    [
        (line("nlp", "alice", GrpTRES="gres/gpu=2"), "alice in account nlp"),
        (line("nlp", parent="ai", GrpTRES="gres/gpu=2"), "account nlp"),
        (line("ai", parent="root", GrpTRES="gres/gpu=2"), "account ai"),
    ],
)
def test_a_group_limit_counts_at_each_level(where: Association, owner: str) -> None:
    [limit] = quotas.met(book(where), ASKED)
    assert limit.is_hopeless
    assert limit.in_words() == (f"4 GPUs asked; {owner} may have 2 GPUs (GrpTRES)")


def test_a_limit_in_use_blocks_but_gives_hope() -> None:
    where = line("ai", parent="root", GrpTRES="gres/gpu=6")
    [limit] = quotas.met(book(where, jobs=(running(account="nlp"),)), ASKED)
    assert not limit.is_hopeless
    assert limit.in_words().endswith("may have 6 GPUs (GrpTRES, 4 GPUs in use)")


def test_a_type_has_a_limit_of_its_own() -> None:
    where = line("nlp", parent="ai", GrpTRES="gres/gpu:h100=4")
    assert quotas.met(book(where), ASKED) == []
    [limit] = quotas.met(book(where, jobs=(running(),)), ASKED)
    assert limit.used == 4
    assert quotas.met(book(where, jobs=(running(),)), replace(ASKED, gpu_type="")) == []


def test_another_accounts_jobs_do_not_count() -> None:
    where = line("nlp", parent="ai", GrpTRES="gres/gpu=4")
    assert quotas.met(book(where, jobs=(running(account="vision"),)), ASKED) == []


def test_the_nearest_line_sets_a_limit_of_each_job() -> None:
    above = line("ai", parent="root", MaxTRES="gres/gpu=2", MaxWall="00:30:00")
    own = line("nlp", parent="ai", MaxTRES="gres/gpu=8")
    found = quotas.met(book(above, own), ASKED)
    assert [(limit.name, limit.owner) for limit in found] == [("MaxWall", "account ai")]


def test_jobs_running_and_waiting_are_counted() -> None:
    one = running(user="alice")
    waiting = live_job(2, BaseState.PENDING, user="alice", account="nlp")
    limited = line("nlp", "alice", MaxJobs="1", MaxSubmit="2")
    found = quotas.met(book(limited, jobs=(one, waiting)), ASKED)
    assert [limit.name for limit in found] == ["MaxJobs", "MaxSubmit"]
    assert not any(limit.is_hopeless for limit in found)


def test_an_array_over_the_limit_of_waiting_jobs_can_never_be_taken() -> None:
    limited = line("nlp", "alice", MaxSubmit="10")
    [limit] = quotas.met(book(limited), replace(ASKED, jobs=11))
    assert limit.is_hopeless


def test_minutes_count_only_where_slurm_is_safe() -> None:
    limited = line("nlp", parent="ai", GrpTRESMins="gres/gpu=100")
    assert quotas.met(book(limited), ASKED) == []
    [limit] = quotas.met(book(limited, enforced="limits,safe"), ASKED)
    assert (limit.asked, limit.allowed) == (240, 100)


@pytest.mark.parametrize(
    ("spent", "enforced", "blocks"),
    [(99, "limits", False), (100, "limits", True), (1, "limits,safe", True)],
)
def test_minutes_that_are_spent_count_everywhere(
    spent: int, enforced: str, blocks: bool
) -> None:
    limited = line("nlp", parent="ai", GrpTRESMins="gres/gpu=100")
    share = Share("c", "nlp", "", 1, 0.5, 0, 0.1, None, 1.0, {"gres/gpu": spent})
    known = replace(book(limited, enforced=enforced), shares={("nlp", ""): share})
    half = replace(ASKED, gpus=1, time=timedelta(minutes=100))
    found = quotas.met(known, half)
    assert [(each.name, each.used) for each in found] == (
        [("GrpTRESMins", spent)] if blocks else []
    )
    [shown] = [
        each
        for each in quotas.all_limits(known, "nlp", "alice", "")
        if each.name == "GrpTRESMins"
    ]
    assert (shown.used, shown.allowed) == (spent, 100)


def test_a_qos_that_spent_its_minutes_blocks_where_slurm_tells_what_it_spent() -> None:
    normal = qos("normal", GrpTRESMins="gres/gpu=100")
    dark = replace(book(), qos={"normal": normal})
    assert quotas.met(dark, ASKED) == []
    assert quotas.all_limits(dark, "nlp", "alice", "") == []
    known = replace(dark, qos_minutes={"normal": {"gres/gpu": 100}})
    [limit] = quotas.met(known, ASKED)
    assert (limit.owner, limit.name) == ("QOS normal", "GrpTRESMins")
    [shown] = quotas.all_limits(known, "nlp", "alice", "")
    assert (shown.used, shown.allowed) == (100, 100)


@pytest.mark.parametrize(
    ("limits", "name"),
    [
        ({"GrpTRES": "gres/gpu=2"}, "GrpTRES"),
        ({"MaxTRES": "gres/gpu=2"}, "MaxTRES"),
        ({"MaxTRESPU": "gres/gpu=2"}, "MaxTRESPU"),
        ({"MaxWall": "00:10:00"}, "MaxWall"),
        ({"MaxSubmitPU": "0"}, "MaxSubmit"),
        ({"MaxJobsPU": "0"}, "MaxJobs"),
    ],
)
def test_a_qos_has_limits_too(limits: Mapping[str, str], name: str) -> None:
    normal = replace(qos("normal"), limits=limits)
    [limit] = quotas.met(replace(book(), qos={"normal": normal}), ASKED)
    assert limit.name == name
    assert "QOS normal" in limit.owner
    assert quotas.met(replace(book(), qos={"normal": normal}), spot()) == []


def spot() -> Asked:
    return replace(ASKED, qos="spot")


def test_the_partitions_own_qos_counts_beside_the_jobs() -> None:
    both = {"normal": qos("normal"), "part": qos("part", MaxTRES="gres/gpu=1")}
    partition = replace(PARTITION, qos="part")
    changed = replace(book(), qos=both, partitions={"gpu": partition})
    assert [limit.owner for limit in quotas.met(changed, ASKED)] == ["QOS part"]


def test_where_a_qos_sets_a_limit_accounts_and_a_later_qos_do_not() -> None:
    """As Slurm has it: the first of partition's QOS, job's QOS, accounts."""
    spot_over = replace(qos("spot", MaxTRES="gres/gpu=8"), flags=frozenset())
    both = {"spot": spot_over, "part": qos("part", MaxTRES="gres/gpu=1")}
    small = book(line("nlp", "alice", MaxTRES="gres/gpu=2"))
    assert quotas.met(replace(small, qos=both), spot()) == []
    partition = replace(PARTITION, qos="part")
    in_part = replace(small, qos=both, partitions={"gpu": partition})
    assert [limit.owner for limit in quotas.met(in_part, spot())] == ["QOS part"]
    over = {**both, "spot": replace(spot_over, flags=frozenset({"OverPartQOS"}))}
    assert quotas.met(replace(in_part, qos=over), spot()) == []


def test_a_tree_that_bites_its_tail_ends() -> None:
    loop = book(line("ai", parent="nlp"), line("nlp", parent="ai"))
    assert [each.account for each in loop.chain("nlp", "alice")] == ["nlp", "nlp", "ai"]


def test_who_is_in_an_account() -> None:
    assert quotas.is_member(book(), ASKED)
    stranger = replace(ASKED, user="mallory")
    assert not quotas.is_member(book(), stranger)
    assert quotas.is_member(book(enforced=""), stranger)


def test_the_place_in_the_queue() -> None:
    waiting = tuple(
        live_job(n, BaseState.PENDING, priority=p) for n, p in ((1, 10), (2, 30))
    )
    queue = book(jobs=waiting)
    assert quotas.place(queue, "gpu") == 3
    assert quotas.place(queue, "gpu", 20) == 2
    assert quotas.place(queue, "none") == 1


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("associations,limits,qos", {"associations", "limits", "qos"}),
        ("none", set()),
        ("", set()),
        ("Limits|SAFE", {"limits", "safe"}),
    ],
)
def test_what_slurm_enforces(value: str, found: set[str]) -> None:
    assert enforced_by({"AccountingStorageEnforce": value}) == found


class Clock:
    """A clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_the_book_is_kept_and_never_old() -> None:
    slurm = FakeSlurm(settings={"AccountingStorageEnforce": "limits"})
    clock = Clock()
    kept = QuotaBook(Site(slurm, clock), clock)
    first = kept.book()
    clock.now += 9
    assert kept.book() is first
    assert slurm.questions.count("associations") == 1
    clock.now += 30
    assert kept.book() is not first
    kept.forget()
    kept.book()
    assert slurm.questions.count("associations") == 3


def test_the_book_is_kept_fresh_though_nobody_looks() -> None:
    """At the service's start, and at half the pace after ten minutes without a request."""
    slurm = FakeSlurm(settings={"AccountingStorageEnforce": "limits"})
    clock = Clock()
    kept = QuotaBook(Site(slurm, clock), clock)

    def asked(seconds: int) -> int:
        """Let time pass as the service's loop does; return how often Slurm was asked."""
        before = slurm.questions.count("associations")
        for _ in range(seconds // 4):
            clock.now += 4
            kept.keep_fresh()
            await_thread("quotas")
        return slurm.questions.count("associations") - before

    assert asked(4) == 1
    quiet = asked(600)
    first = kept.book()
    assert quiet == 30
    assert slurm.questions.count("associations") == 31  # the request asked nothing
    assert asked(600) in (49, 50)
    assert kept.book() is not first
    slurm.is_up = False
    assert asked(600) <= 60  # not in each round while it is down


def await_thread(name: str) -> None:
    for thread in threading.enumerate():
        if thread.name == name:
            thread.join(60)


def test_limits_that_are_too_old_are_not_believed() -> None:
    slurm = FakeSlurm(settings={"AccountingStorageEnforce": "limits"})
    clock = Clock()
    kept = QuotaBook(Site(slurm, clock), clock)
    kept.book()
    slurm.is_up = False
    clock.now += 31
    with pytest.raises(UnavailableError):
        kept.book()


def test_where_nothing_is_enforced_slurm_is_not_asked() -> None:
    slurm = FakeSlurm()
    assert QuotaBook(Site(slurm)).book() is None
    assert "associations" not in slurm.questions
