"""The answers of four real Slurm versions, each file read, right values asserted.

Where a file was recorded with other columns than the adapter asks for, its fields are
laid into the adapter's own columns: the values are real, the order is ours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from hpcplat.errors import HpcplatError, InvalidError, NotFoundError, UnavailableError
from hpcplat.processes import Completed
from hpcplat.quantities import parse_limit
from hpcplat.slurm import (
    assoc_mgr,
    refusals,
    sacct,
    sacctmgr,
    sbatch,
    scontrol,
    sinfo,
    squeue,
    sshare,
)
from hpcplat.slurm.addresses import checked
from hpcplat.slurm.answers import UnreadableError
from hpcplat.slurm.hostlist import expand
from hpcplat.slurm.scheduler import LiveJob, Node, PastJob, SubmissionDoubtError
from hpcplat.slurm.states import BaseState, is_final, may_come_back, parse_state
from hpcplat.slurm.tres import parse_tres
from hpcplat.slurm.versions import parse_version

RECORDED = Path(__file__).parents[2] / "recorded"
VERSIONS = ("22.05", "24.11", "25.11", "26.05")
SEPARATOR = "\x1ffield"

# Recorded, but nothing of ours asks for it: priorities, the association manager's
# table, squeue and sinfo as people see them, and JSON that 22.05 lacks or that drifts.
UNUSED = {
    "assoc.json",
    "assoc_mgr.txt",
    "show_nodes.json",
    "sinfo.json",
    "sinfo.txt",
    "sprio.txt",
    "squeue.txt",
}

pytestmark = pytest.mark.parametrize("version", VERSIONS)


def read(version: str, name: str) -> str:
    return (RECORDED / version / name).read_text()


def answer(version: str, name: str, program: str) -> Completed:
    folder = RECORDED / version
    error, status = folder / f"{name}.err", folder / f"{name}.rc"
    return Completed(
        (program,),
        int(status.read_text()) if status.exists() else 0,
        (folder / name).read_text(),
        error.read_text() if error.exists() else "",
    )


def laid_out(rows: list[dict[str, str]], columns: tuple[str, ...]) -> str:
    """Return rows as the adapter's own call would print them."""
    return "".join(
        "".join(f"{row.get(column, '')}{SEPARATOR}" for column in columns) + "\n"
        for row in rows
    )


def table(version: str, name: str, columns: str = "") -> Iterator[dict[str, str]]:
    """Return the rows of a file with bars, named by its header or by ``columns``."""
    lines = read(version, name).splitlines()
    header = columns.split() if columns else lines.pop(0).split("|")
    for line in lines:
        yield dict(zip(header, line.split("|"), strict=True))


def live_jobs(version: str) -> dict[str, LiveJob]:
    pipe = table(
        version,
        "squeue_pipe.txt",
        "JobArrayID JobID ArrayJobID ArrayTaskID Name UserName Account Partition QOS"
        " State Reason _ NodeList NumNodes NumCPUs tres-per-node TimeLimit _used"
        " SubmitTime StartTime EndTime Comment PriorityLong",
    )
    more = {
        row["JobArrayID"]: row
        for row in table(
            version,
            "squeue_O.txt",
            "JobID JobArrayID Name StateCompact Reason Comment RestartCnt SubmitTime"
            " StartTime tres-alloc tres-per-node",
        )
    }
    fixed = {"BatchHost": "n/a", "tres-per-job": "N/A", "Cluster": "pocket"}
    rows = [fixed | more[row["JobArrayID"]] | row for row in pipe]
    jobs = squeue.parse(laid_out(rows, squeue.COLUMNS), SEPARATOR)
    return {job.name + job.address.partition("_")[2]: job for job in jobs}


def test_live_jobs(version: str) -> None:
    jobs = live_jobs(version)
    assert len(jobs) == 11
    reasons = {name: job.reason for name, job in jobs.items()}
    assert reasons == {
        "spotlimit": "QOSMaxGRESPerUser",
        "future": "BeginTime",
        "spot": "BeginTime",
        "run2": "BeginTime",
        "arr[2-9%2]": "JobArrayTaskLimit",
        "dep": "Dependency",
        "quota": "AssocGrpGRES",
        "held": "JobHeldUser",
        "prod": "",
        "arr0": "",
        "arr1": "",
    }
    states = {name: str(job.state) for name, job in jobs.items()}
    running = {"prod", "arr0", "arr1"}
    assert {name for name, state in states.items() if state == "RUNNING"} == running
    assert set(states.values()) == {"RUNNING", "PENDING"}
    assert {name for name, job in jobs.items() if job.restarts} == {"spot", "run2"}
    gpus = {name: job.gpus for name, job in jobs.items() if job.gpus}
    assert gpus == {"spotlimit": 8, "spot": 4, "run2": 4, "quota": 12, "prod": 8}


def test_a_live_job_whole(version: str) -> None:
    prod = live_jobs(version)["prod"]
    assert prod.nodes == ("gpu-a05", "gpu-a06")
    assert (prod.user, prod.account, prod.partition, prod.qos) == (
        "alice",
        "nlp",
        "train",
        "prod",
    )
    assert (prod.node_count, prod.cpus, prod.priority) == (2, 2, 10000)
    assert prod.time_limit == timedelta(hours=1)
    assert prod.started is not None
    assert prod.ends == prod.started + timedelta(hours=1)
    assert prod.submitted.tzinfo is UTC
    run2 = live_jobs(version)["run2"]
    assert run2.comment == "hpcplat:k2"
    assert run2.started is None
    assert run2.expected_start is not None
    waits = run2.expected_start - run2.submitted
    assert timedelta(seconds=119) < waits < timedelta(seconds=123)
    task = live_jobs(version)["arr1"]
    assert (task.address, task.array_job_id, task.array_task_id) == ("5_1", 5, 1)
    rest = live_jobs(version)["arr[2-9%2]"]
    assert (rest.job_id, rest.array_task_id) == (5, None)
    assert checked(rest.address) == "5_[2-9]"


def test_the_json_of_a_state_says_the_same(version: str) -> None:
    jobs = json.loads(read(version, "squeue.json"))["jobs"]
    by_id = {job["job_id"]: parse_state(job["job_state"]) for job in jobs}
    for job in live_jobs(version).values():
        assert by_id[job.job_id] == job.state
    named = {job["name"]: parse_state(job["job_state"]) for job in jobs}
    if version == "22.05":  # newer ones leave the finished out of --json
        assert named["fails"].base is BaseState.FAILED
    words = [job["state"]["current"] for job in _past_json(version)]
    assert "COMPLETED" in {str(parse_state(word)) for word in words}


def _past_json(version: str) -> list[dict[str, Any]]:
    jobs: list[dict[str, Any]] = json.loads(read(version, "sacct.json"))["jobs"]
    return jobs


@pytest.mark.parametrize("form", ["compact", "long"])
def test_both_forms_of_a_state(version: str, form: str) -> None:
    name = "squeue_O.txt" if form == "compact" else "squeue_pipe.txt"
    column = 3 if form == "compact" else 9
    words = [line.split("|")[column] for line in read(version, name).splitlines()]
    assert [parse_state(word).base for word in words].count(BaseState.RUNNING) == 3


def past_jobs(version: str, name: str) -> list[PastJob]:
    rows = [{"Cluster": "pocket"} | row for row in table(version, name)]
    return list(sacct.parse(laid_out(rows, sacct.COLUMNS), SEPARATOR))


def check_past(jobs: list[PastJob]) -> None:
    by_name = {job.name: job for job in jobs}
    done = by_name["done"]
    assert (str(done.state), done.exit_code) == ("COMPLETED", 0)
    assert [step.step for step in done.steps] == ["batch", "0"]
    assert done.allocated["gres/gpu:h100"] == 1
    assert done.allocated["mem"] == 200
    assert done.comment == "hpcplat:k1"
    assert is_final(done.state)
    fails = by_name["fails"]
    assert (str(fails.state), fails.exit_code, fails.exit_signal) == ("FAILED", 3, 0)
    lost = by_name["run2"]
    assert str(lost.state) == "NODE_FAIL"
    assert lost.nodes == ("n1", "n2")
    assert {step.exit_signal for step in lost.steps} == {15}
    assert may_come_back(lost.state)
    assert not is_final(lost.state)
    assert str(by_name["spot"].state) == "PREEMPTED"
    assert not is_final(by_name["spot"].state)
    assert str(by_name["cancelled"].state) == "CANCELLED"
    assert is_final(by_name["cancelled"].state)
    quota = by_name["quota"]
    assert (quota.started, quota.ended, quota.nodes) == (None, None, ())
    assert by_name["prod"].ended is None
    assert {job.address for job in jobs if job.name == "arr"} == {"5_0", "5_1"}


def test_past_jobs(version: str) -> None:
    check_past(past_jobs(version, "sacct_noRestarts_P.txt"))
    refused = answer(version, "sacct_P.txt", "sacct")
    if version == "22.05":  # knows no Restarts: the adapter must not ask for it
        error = refusals.error_of(refused, UnavailableError)
        assert "Restarts" in str(error)
        assert "Restarts" not in sacct.COLUMNS
    else:
        jobs = past_jobs(version, "sacct_P.txt")
        check_past(jobs)
        assert {job.qos for job in jobs} == {"normal", "spot", "prod"}


def nodes(version: str) -> dict[str, Node]:
    shown = [_words(line) for line in read(version, "show_nodes.txt").splitlines()]
    by_line = zip(
        table(
            version, "sinfo_N.txt", "NodeList t T Gres CPUs Memory Features Reason l"
        ),
        table(version, "sinfo_gres.txt", "host StateLong Gres GresUsed Reason"),
        strict=True,
    )
    told = {first["NodeList"]: second | first for first, second in by_line}
    rows = [
        told[node["NodeName"]]
        | {
            "PartitionName": partition,
            "StateComplete": node["State"].lower(),
            "CPUsState": f"{node['CPUAlloc']}/0/0/{node['CPUTot']}",
            "AllocMem": node["AllocMem"],
        }
        for node in shown
        for partition in node["Partitions"].split(",")
    ]
    found = sinfo.parse(laid_out(rows, sinfo.COLUMNS), SEPARATOR)
    return {node.name: node for node in found}


def _words(line: str) -> dict[str, str]:
    return dict(word.split("=", 1) for word in line.split() if "=" in word)


def test_nodes(version: str) -> None:
    found = nodes(version)
    assert set(found) == {"n1", "n2", "n3", "n4", "gpu-a05", "gpu-a06"}
    busy = found["gpu-a05"]
    assert (busy.state, busy.flags) == ("MIXED", frozenset())
    assert (busy.gpus, busy.gpus_used) == ({"a100": 4}, {"a100": 4})
    assert busy.features == ("nvlink", "ib")
    assert (busy.cpus, busy.cpus_used, busy.memory_mib) == (8, 1, 4000)
    assert busy.memory_used_mib == 200
    drained = found["n4"]
    assert (drained.state, drained.flags) == ("IDLE", frozenset({"DRAIN"}))
    assert drained.reason == "xid 79 on gpu 2"
    # 25.11 had its node back already: requeue=expedite came with a restart.
    assert found["n2"].state == ("IDLE" if version == "25.11" else "DOWN")
    assert found["n1"].partitions == ("train", "debug")
    assert found["n1"].gpus_used == {}


def test_partitions(version: str) -> None:
    train, debug = scontrol.parse_partitions(read(version, "show_partition.txt"))
    assert (train.name, train.is_default, train.state) == ("train", True, "UP")
    assert train.nodes == ("gpu-a05", "gpu-a06", "n1", "n2", "n3", "n4")
    assert (train.max_time, train.default_time) == (
        timedelta(days=2),
        timedelta(hours=1),
    )
    assert (train.max_nodes, train.allowed_accounts, train.qos) == (None, None, "")
    assert (debug.max_nodes, debug.max_time) == (1, timedelta(minutes=30))
    assert (debug.is_default, debug.default_time) == (False, None)


def test_settings(version: str) -> None:
    config = scontrol.parse_config(read(version, "show_config.txt"))
    assert config["SLURM_VERSION"].startswith(version)
    assert config["ClusterName"] == "pocket"
    assert config["MaxArraySize"] == "101"
    assert config["MinJobAge"] == "300 sec"
    assert config["JobSubmitPlugins"] == ""
    assert "job_comment" in config["AccountingStoreFlags"].split(",")
    assert scontrol.parse_ping(read(version, "ping.txt"))
    release = parse_version(read(version, "version.txt"))
    assert "{}.{:02}".format(*release) == version


def test_associations(version: str) -> None:
    columns = (
        "Cluster Account User Partition Share priority GrpJobs GrpTRES GrpTRESMins"
        " GrpSubmit MaxJobs MaxSubmit MaxTRES QOS DefaultQOS"
    )
    rows = table(version, "assoc_P.txt", columns)
    text = "".join(
        "|".join(row.get(column, "") for column in sacctmgr.ASSOCIATION_COLUMNS) + "\n"
        for row in rows
    )
    found = {
        (each.account, each.user): each for each in sacctmgr.parse_associations(text)
    }
    assert len(found) == 7
    nlp = found["nlp", ""]
    assert (nlp.fair_share, nlp.limits) == ("60", {"GrpTRES": "gres/gpu=8"})
    assert parse_tres(nlp.limits["GrpTRES"]) == {"gres/gpu": 8}
    assert found["vision", ""].limits == {"GrpTRESMins": "gres/gpu=60000"}
    bob = found["vision", "bob"]
    assert bob.limits == {"MaxJobs": "5"}
    assert bob.qos == ("normal", "prod", "spot")
    assert bob.default_qos == "normal"


def test_qualities_of_service(version: str) -> None:
    columns = (
        "Name Priority Preempt PreemptMode GrpTRES MaxTRESPU MaxJobsPU MaxWall Flags"
    )
    text = "".join(
        "|".join(row.get(column, "") for column in sacctmgr.QOS_COLUMNS) + "\n"
        for row in table(version, "qos_P.txt", columns)
    )
    found = {each.name: each for each in sacctmgr.parse_qos(text)}
    assert found["prod"].preempts == ("spot",)
    assert found["prod"].priority == 100
    assert found["spot"].preempt_mode == "requeue"
    assert found["spot"].limits == {"MaxTRESPU": "gres/gpu=6"}


def test_fair_shares(version: str) -> None:
    rows = [{"Cluster": "pocket"} | row for row in table(version, "sshare_P.txt")]
    text = "\n".join(
        "|".join(row.get(column, "") for column in sshare.COLUMNS) for row in rows
    )
    found = {(each.account, each.user): each for each in sshare.parse(text)}
    assert found["nlp", ""].raw_shares == 60
    assert found["nlp", ""].norm_shares == pytest.approx(0.594059)
    assert found["nlp", ""].fair_share is None
    assert found["nlp", "alice"].raw_usage > 0
    assert found["root", ""].raw_shares is None
    assert found["root", "root"].level_fs == float("inf")


def test_every_job_that_scontrol_shows(version: str) -> None:
    texts = [
        read(version, name)
        for name in (
            "show_jobs_oneline.txt",
            "show_job_running.txt",
            "show_job_array.txt",
        )
    ]
    for text in texts:
        words = re.findall(r"(?:^|\s)(\w[\w/:]*)=(\S*)", text)
        found: dict[str, list[str]] = {}
        for key, value in words:
            found.setdefault(key, []).append(value)
        assert all(parse_state(word) for word in found["JobState"])
        assert all(parse_limit(word) for word in found["TimeLimit"])
        assert all(isinstance(expand(word), tuple) for word in found["NodeList"])
        key = "TRES" if "TRES" in found else "ReqTRES"
        assert all(parse_tres(word)["cpu"] for word in found[key])
    if version != "22.05":
        shown = json.loads(read(version, "show_job.json"))["jobs"]
        assert all(parse_state(job["job_state"]) for job in shown)
    else:
        refused = answer(version, "show_job.json", "scontrol")
        assert not refused.ok
        assert isinstance(refusals.error_of(refused, InvalidError), HpcplatError)


def test_hostnames(version: str) -> None:
    names = tuple(read(version, "hostnames.txt").split())
    assert expand("n[1,3-4],gpu-a[05-06]") == names


def test_what_sbatch_says(version: str) -> None:
    assert sbatch.parse(read(version, "sbatch_parsable.txt")).job_id == 16
    with pytest.raises(UnreadableError, match="Submitted batch job"):
        sbatch.parse(read(version, "sbatch_ok.txt"))


def test_an_estimate(version: str) -> None:
    told = read(version, "test_only.txt.err")
    shown = re.search(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", told)
    assert shown is not None
    assert read(version, "test_only.txt") == ""
    moment = datetime.fromisoformat(shown[0]).replace(tzinfo=UTC)
    # The adapter asks for epoch seconds; what stands behind the time stays.
    told = told.replace(shown[0], str(int(moment.timestamp())))
    near, far = moment - timedelta(hours=2), moment - timedelta(days=365)
    assert sbatch.parse_estimate(told, near) == moment
    assert sbatch.parse_estimate(told, far) is None
    with pytest.raises(UnreadableError):
        sbatch.parse_estimate("sbatch: nothing\n", near)


ACCEPTED_BY = {
    "err_both_gpu": {"22.05", "24.11", "25.11"},
    "err_dep": {"22.05"},
    "err_maxnodes": set(VERSIONS),
    "err_nodes": {"22.05", "25.11", "26.05"},
    "err_time": set(VERSIONS),
}


@pytest.mark.parametrize(
    ("name", "words", "topic"),
    [
        ("err_account", "Invalid account", refusals.Topic.ACCOUNT),
        ("err_array", "Invalid job array", None),
        ("err_both_gpu", "mutually exclusive", None),
        ("err_dep", "dependency problem", None),
        ("err_gres_count", "node configuration", refusals.Topic.NODES),
        ("err_gres_type", "node configuration", refusals.Topic.NODES),
        ("err_maxnodes", "", None),
        ("err_mem", "Memory specification", refusals.Topic.NODES),
        ("err_nodes", "node configuration", refusals.Topic.NODES),
        ("err_nouser", "Invalid", None),
        ("err_partition", "specified: nope", refusals.Topic.PARTITION),
        ("err_qos", "Invalid qos", refusals.Topic.QOS),
        ("err_time", "", None),
    ],
)
def test_a_refusal_is_certain(
    version: str, name: str, words: str, topic: refusals.Topic | None
) -> None:
    done = answer(version, f"{name}.txt", "sbatch")
    if version in ACCEPTED_BY.get(name, set()):
        assert done.ok
        return
    error = refusals.submission_error(done)
    assert isinstance(error, InvalidError)
    assert words in error.what
    assert error.remedy
    assert "\n" not in str(error)
    row = refusals.find(error.what)
    if topic is not None:
        assert row is not None
        assert row.topic is topic


@pytest.mark.parametrize("name", ["err_requeue_bad", "err_show_bad"])
def test_a_job_that_never_was(version: str, name: str) -> None:
    done = answer(version, f"{name}.txt", "scontrol")
    assert isinstance(refusals.error_of(done, InvalidError), NotFoundError)


def test_scancel_says_nothing_about_a_job_that_never_was(version: str) -> None:
    assert answer(version, "scancel_bad.txt", "scancel").ok


@pytest.mark.parametrize(
    ("name", "judge"),
    [
        ("down_squeue", lambda done: refusals.error_of(done, InvalidError)),
        ("down_sacct", lambda done: refusals.error_of(done, InvalidError)),
        ("down_sbatch", refusals.submission_error),
    ],
)
def test_an_outage(
    version: str, name: str, judge: Callable[[Completed], HpcplatError]
) -> None:
    error = judge(answer(version, f"{name}.txt", name.removeprefix("down_")))
    assert isinstance(error, UnavailableError)
    assert not isinstance(error, SubmissionDoubtError)
    assert "scontrol ping" in error.remedy


def test_every_recorded_file_is_read_here(version: str) -> None:
    source = Path(__file__).read_text()
    stems = re.compile(r"(?:err_|down_)\w+")
    known = set(re.findall(r"[\w.]+\.(?:txt|json)", source)) | UNUSED
    known |= {f"{stem}.txt" for stem in stems.findall(source)}
    for path in (RECORDED / version).iterdir():
        name = re.sub(r"\.(?:err|rc)$", "", path.name)
        assert name in known, f"{path} is recorded but not read"


def test_minutes_of_a_qos(version: str) -> None:
    text = read(version, "assoc_mgr.txt")
    used = assoc_mgr.parse_qos_minutes(text)
    assert set(used) == {"normal", "spot", "prod"}
    assert used["spot"]["mem"] > 0
    assert used["spot"]["gres/gpu"] == 0
    limited = text.replace("gres/gpu=N(0)", "gres/gpu=600(480)")
    assert assoc_mgr.parse_qos_minutes(limited)["prod"]["gres/gpu"] == 480
    hidden = text[: text.index("QOS Records")]
    assert assoc_mgr.parse_qos_minutes(hidden) == {}
    for bad in ("", limited.replace("600(480)", "600")):
        with pytest.raises(UnreadableError):
            assoc_mgr.parse_qos_minutes(bad)
