"""Admission and what Slurm itself says: pure rules over facts."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from hpcplat.errors import UnavailableError
from hpcplat.jobs import JobSpec, spec_of
from hpcplat.sitepolicy import SitePolicy
from hpcplat.slurm.scheduler import Association
from server.admission import admit, policy_for
from server.problems import FieldsError
from server.quotabook import QuotaBook
from server.site import Facts, Site
from tests.server.fakes import PARTITION, FakeSlurm, node

NODES = (node("n1"), node("n2"), node("c1", gpus=0), node("a1", 8, "a100"))
SHORT = replace(
    PARTITION, name="short", is_default=False, max_time=timedelta(minutes=30)
)
FACTS = Facts(
    nodes=tuple(replace(one, partitions=("gpu", "short")) for one in NODES),
    partitions=(PARTITION, SHORT),
    config={"MaxArraySize": "101", "MinJobAge": "120 sec"},
)


def spec(**resources: Any) -> JobSpec:  # noqa: ANN401
    return spec_of({"name": "x", "command": ["true"], "resources": resources})


def refusal(asked: JobSpec) -> dict[str, str]:
    with pytest.raises(FieldsError) as raised:
        admit(asked, FACTS)
    return {
        error.field.removeprefix("spec.resources."): error.remedy
        for error in raised.value.errors
    }


def test_a_job_that_one_of_its_partitions_takes_is_admitted() -> None:
    assert admit(spec(partition="short,gpu", time="1h"), FACTS).name == "gpu"
    assert admit(spec(partition="short,gpu", time="10m"), FACTS).name == "short"
    assert "at most 00:30:00" in refusal(spec(partition="short", time="1h"))["time"]


def test_gpus_are_counted_by_type_on_the_nodes_that_have_them() -> None:
    assert admit(spec(gpus_per_node=8), FACTS)
    assert admit(spec(gpus_per_node=8, gpu_type="a100"), FACTS)
    assert (
        "at most 4" in refusal(spec(gpus_per_node=8, gpu_type="h100"))["gpus_per_node"]
    )
    two = spec(nodes=2, gpus_per_node=8, gpu_type="a100")
    assert "at most 1 node." in refusal(two)["nodes"]
    unknown = refusal(spec(gpus_per_node=1, gpu_type="a10"))["gpu_type"]
    assert unknown == "The nearest is a100. It has: a100, h100."


def test_all_that_is_wrong_is_told_at_once() -> None:
    assert refusal(spec(nodes=9, time="13h", memory="1T")).keys() == {
        "nodes",
        "time",
        "memory",
    }


@pytest.mark.parametrize(
    ("command", "is_there"),
    [
        (["./train.sh"], False),
        ("./train.sh --steps 5", False),
        ("python train.py", False),
        (["bash", "own.sh"], True),
        ("./own.sh", True),
        ("A=./train.sh env", True),  # what a shell makes of it, nobody else knows
        ("cd ./sub || ./train.sh", True),
        ("python -m train", True),
    ],
)
def test_a_script_that_is_surely_not_there_is_refused(
    command: str | list[str], is_there: bool, tmp_path: Path
) -> None:
    (tmp_path / "own.sh").touch()
    asked = spec_of(
        {"name": "x", "command": command, "environment": {"folder": str(tmp_path)}}
    )
    if is_there:
        assert admit(asked, FACTS)
    else:
        assert refusal(asked) == {"spec.command": "Check the name."}


def test_a_cluster_without_a_default_partition_wants_one_named() -> None:
    facts = replace(FACTS, partitions=(SHORT,))
    with pytest.raises(FieldsError, match="default partition"):
        admit(spec(), facts)


def test_the_policy_takes_in_what_slurm_says() -> None:
    policy = policy_for(SitePolicy(), FACTS, spec(partition="short"))
    assert policy.max_array_size == 101
    assert policy.default_time == timedelta(minutes=30)  # of the partition
    assert policy.key_in_name  # accounting keeps no comments here
    kept = replace(FACTS, config={"AccountingStoreFlags": "job_comment,job_env"})
    assert not policy_for(SitePolicy(), kept, spec()).key_in_name


def test_numbers_of_the_configuration_are_read() -> None:
    assert FACTS.min_job_age == 120
    assert Facts((), (), {}).max_array_size == 1001
    assert not FACTS.has_accounting


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_facts_are_asked_for_once_in_a_while(slurm: FakeSlurm) -> None:
    clock = Clock()
    site = Site(slurm, clock)
    for _ in range(5):
        site.facts()
    assert slurm.questions == ["nodes", "partitions", "config"]
    clock.now = 11
    site.facts()
    assert len(slurm.questions) == 6


def test_older_facts_do_while_slurm_is_away_but_not_for_ever(slurm: FakeSlurm) -> None:
    clock = Clock()
    site = Site(slurm, clock)
    site.facts()
    slurm.is_up = False
    clock.now = 300
    assert site.facts().nodes
    assert site.name == "fake"
    asked = len(slurm.questions)
    site.facts()  # nobody waits for Slurm again so soon
    assert len(slurm.questions) == asked
    clock.now = 700
    with pytest.raises(UnavailableError):
        site.facts()
    assert site.name == "fake"


def test_while_accounting_is_away_not_every_request_waits_for_it(
    slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    slurm.settings["AccountingStorageEnforce"] = "associations,limits"
    asked: list[float] = []

    def away() -> tuple[Association, ...]:
        asked.append(clock.now)
        raise UnavailableError("slurmdbd is down.")

    monkeypatch.setattr(slurm, "associations", away)
    book = QuotaBook(Site(slurm, clock), clock)
    for clock.now in (0.0, 1.0, 4.0, 6.0):
        with pytest.raises(UnavailableError, match="slurmdbd is down"):
            book.book()
    assert asked == [0.0, 6.0]
