"""Arguments and parsers of the commands, where no real Slurm is needed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from hpcplat.errors import ForbiddenError, InvalidError, UnavailableError
from hpcplat.processes import Completed
from hpcplat.slurm import (
    environment,
    refusals,
    sacct,
    sacctmgr,
    sbatch,
    scancel,
    scontrol,
    sinfo,
    squeue,
    sshare,
)
from hpcplat.slurm.addresses import checked
from hpcplat.slurm.answers import UnreadableError
from hpcplat.slurm.scheduler import Submission, SubmissionDoubtError
from hpcplat.slurm.states import has_ended, is_final, may_come_back
from hpcplat.slurm.versions import parse_version

SEPARATOR = "\x1fsep"


@pytest.mark.parametrize(
    ("address", "taken"),
    [
        ("123", "123"),
        ("123_4", "123_4"),
        ("123_[5-9%2]", "123_[5-9]"),
        ("123_[6-12:3%2]", "123_[6,9,12]"),
        ("123_[1,4-10:2,20]", "123_[1,4,6,8,10,20]"),
        ("123+1", "123+1"),
    ],
)
def test_an_address_as_the_commands_take_it(address: str, taken: str) -> None:
    assert checked(address) == taken
    assert scancel.argv(address)[-1] == taken
    assert scontrol.argv_requeue(address)[-1] == taken


@pytest.mark.parametrize(
    "address",
    ["", "0", "-1", "--all", "12;13", "1 2", "1_", "1_[", "x", "1\n", "\uff11"],
)
def test_what_is_no_address_reaches_no_command(address: str) -> None:
    for argv in (scancel.argv, scontrol.argv_requeue, scontrol.argv_start_now):
        with pytest.raises(InvalidError, match="is not a job"):
            argv(address)


def test_a_signal_goes_to_the_batch_shell() -> None:
    assert scancel.argv("7", "USR2") == ["scancel", "--batch", "--signal=USR2", "7"]
    for signal in ("usr2", "-9", "USR2 --user=root", ""):
        with pytest.raises(InvalidError, match="is not a signal"):
            scancel.argv("7", signal)


def test_a_node_state_is_one_of_three() -> None:
    assert scontrol.argv_node_state("n1", "DOWN", " lost\n contact ") == [
        "scontrol",
        "update",
        "nodename=n1",
        "state=down",
        "reason=lost contact",
    ]
    assert scontrol.argv_node_state("n1", "resume", "x")[-1] == "state=resume"
    assert scontrol.argv_node_state("n1", "drain", "")[-1] == "reason=hpcplat"
    for node, state in (("n1", "fail"), ("n[1-2]", "down"), ("", "down")):
        with pytest.raises(InvalidError):
            scontrol.argv_node_state(node, state, "x")


def test_a_job_is_named_and_never_through_a_shell() -> None:
    submission = Submission("#!/bin/sh\n", "/data/a b;c", ("--comment=$(id)",))
    assert sbatch.argv(submission) == [
        "sbatch",
        "--parsable",
        "--chdir=/data/a b;c",
        "--comment=$(id)",
    ]
    assert sbatch.argv_estimate(submission)[1] == "--test-only"
    root = Submission("", "/", (), "root")
    assert sbatch.argv(root)[-2:] == ["--uid=root", "--gid=0"]


@pytest.mark.parametrize(
    ("answer", "job_id", "cluster"),
    [("12\n", 12, ""), ("12", 12, ""), ("12;east\n", 12, "east")],
)
def test_what_sbatch_answers(answer: str, job_id: int, cluster: str) -> None:
    job = sbatch.parse(answer)
    assert (job.job_id, job.cluster) == (job_id, cluster)


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "0",
        "12;",
        "hello\n12\n",
        "12\nbye\n",
        "12 ",
        "-12",
        "12;a b",
        "\uff11\uff12",
    ],
)
def test_an_answer_with_anything_else_is_unreadable(answer: str) -> None:
    with pytest.raises(UnreadableError):
        sbatch.parse(answer)


def ended(status: int, stderr: str, stdout: str = "") -> Completed:
    return Completed(("/opt/slurm/bin/sbatch",), status, stdout, stderr)


FAILED = "sbatch: error: Batch job submission failed: "


@pytest.mark.parametrize(
    ("done", "error"),
    [
        (ended(1, f"{FAILED}Invalid qos specification\n"), InvalidError),
        (ended(1, f"{FAILED}Job violates accounting/QOS policy (…)\n"), ForbiddenError),
        (ended(1, f"{FAILED}A reason that a new Slurm has\n"), InvalidError),
        (
            ended(1, f"sbatch: error: Ask for a GPU!\n{FAILED}Unspecified error\n"),
            InvalidError,
        ),
        (
            ended(255, "/opt/slurm/bin/sbatch: unrecognized option '--x'\n"),
            InvalidError,
        ),
        (
            ended(1, "sbatch: fatal: --a and --b are mutually exclusive.\n"),
            InvalidError,
        ),
        (
            ended(1, f"{FAILED}Unable to contact slurm controller (connect failure)\n"),
            UnavailableError,
        ),
        (ended(1, f"{FAILED}MaxJobCount limit reached\n"), UnavailableError),
        (ended(1, f"{FAILED}Socket timed out on send/recv\n"), SubmissionDoubtError),
        (ended(1, f"{FAILED}Zero Bytes were transmitted\n"), SubmissionDoubtError),
        (
            ended(1, f"{FAILED}Unable to contact slurm controller (receive failure)\n"),
            SubmissionDoubtError,
        ),
        (ended(1, f"{FAILED}Unspecified error\n"), SubmissionDoubtError),
        (ended(1, "Traceback: our wrapper broke\n"), SubmissionDoubtError),
        (ended(1, ""), SubmissionDoubtError),
        (ended(-9, f"{FAILED}Invalid qos specification\n"), SubmissionDoubtError),
        (ended(-15, ""), SubmissionDoubtError),
        (
            ended(1, f"{FAILED}Invalid qos specification\n", "12\n"),
            SubmissionDoubtError,
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_refusal_an_outage_and_a_doubt(done: Completed, error: type) -> None:
    judged = refusals.submission_error(done)
    assert type(judged) is error
    assert judged.remedy
    assert "\n" not in str(judged)


def test_the_words_are_slurms_own() -> None:
    done = ended(1, f"sbatch: error: invalid partition: x\n{FAILED}Invalid partition\n")
    assert refusals.words_of(done) == "invalid partition: x; Invalid partition"
    assert refusals.words_of(ended(7, "")) == "exit status 7"
    loud = ended(1, f"{FAILED}{'x' * 10_000}")
    assert len(str(refusals.submission_error(loud))) < 500


def test_history_is_asked_in_utc_with_an_end_and_all_states() -> None:
    east = timezone(timedelta(hours=5))
    argv = sacct.argv(datetime(2026, 1, 1, 4, tzinfo=east), [7, 8], SEPARATOR)
    assert "--starttime=2025-12-31T23:00:00" in argv
    assert "--jobs=7,8" in argv
    assert any(word.startswith("--endtime=") for word in argv)
    assert any(word.startswith("--state=") for word in argv)
    none = sacct.argv(datetime(2026, 1, 1, tzinfo=UTC), [], SEPARATOR)
    assert not any(word.startswith("--jobs") for word in none)
    with pytest.raises(ValueError, match="no time zone"):
        sacct.argv(datetime(2026, 1, 1), [], SEPARATOR)


def past_row(**fields: str) -> str:
    row = dict.fromkeys(sacct.COLUMNS, "") | {
        "JobIDRaw": "7",
        "JobID": "7",
        "State": "COMPLETED",
        "ExitCode": "0:0",
        "Submit": "2026-01-01T00:00:00",
        "Start": "Unknown",
        "End": "Unknown",
        "NodeList": "None assigned",
    }
    return "".join(f"{field}{SEPARATOR}" for field in (row | fields).values()) + "\n"


def test_attempts_keep_their_own_steps() -> None:
    step = {"JobIDRaw": "7.batch", "JobID": "7.batch"}
    text = (
        past_row(State="NODE_FAIL")
        + past_row(**step, State="CANCELLED", ExitCode="0:15")
        + past_row()
        + past_row(**step)
        + past_row(JobIDRaw="8", JobName="a\nb")
    )
    first, second, other = sacct.parse(text, SEPARATOR)
    assert [(s.step, str(s.state), s.exit_signal) for s in first.steps] == [
        ("batch", "CANCELLED", 15)
    ]
    assert [(s.step, str(s.state)) for s in second.steps] == [("batch", "COMPLETED")]
    assert (other.job_id, other.steps, other.name) == (8, (), "a\nb")


def test_a_step_whose_node_died_has_no_exit_code() -> None:
    step = {"JobIDRaw": "7.batch", "JobID": "7.batch"}
    text = past_row(State="NODE_FAIL") + past_row(
        **step, State="CANCELLED", ExitCode=""
    )
    [attempt] = sacct.parse(text, SEPARATOR)
    assert (attempt.steps[0].exit_code, attempt.steps[0].exit_signal) == (0, 0)


@pytest.mark.parametrize(
    ("usage", "peak"),
    [
        ("cpu=00:00:11,energy=0,gres/gpumem=36266M,gres/gpuutil=100,pages=0", 100),
        ("cpu=00:00:11,gres/gpumem=0,gres/gpuutil=0", 0),
        ("cpu=00:00:11,energy=0,fs/disk=87613,mem=628748K,pages=0,vmem=0", None),
        ("", None),
    ],
)
def test_a_step_tells_its_time_and_the_load_of_its_gpus_if_slurm_gathers_it(
    usage: str, peak: int | None
) -> None:
    times = {"Start": "2026-01-01T00:00:01", "End": "2026-01-01T00:00:02"}
    step = past_row(JobIDRaw="7.0", TRESUsageInMax=usage, **times)
    [job] = sacct.parse(past_row() + step, SEPARATOR)
    begin = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)
    [found] = job.steps
    assert (found.started, found.ended) == (begin, begin + timedelta(seconds=1))
    assert found.gpu_peak == peak


def test_an_attempt_that_a_requeue_ended() -> None:
    end = {"Start": "2026-01-01T00:00:01", "End": "2026-01-01T00:00:02"}
    text = past_row(State="REQUEUED", **end) + past_row(State="RESIZING", **end)
    requeued, part = sacct.parse(text, SEPARATOR)
    assert str(requeued.state) == "CANCELLED+REQUEUED"
    assert has_ended(requeued.state)
    assert may_come_back(requeued.state)
    assert not is_final(requeued.state)
    assert not has_ended(part.state)
    assert part.ended is not None


@pytest.mark.parametrize(
    "text",
    [
        past_row(JobIDRaw="7.batch"),
        past_row() + past_row(JobIDRaw="8.batch"),
        past_row(State="BRAND_NEW"),
        past_row(ExitCode="0"),
        past_row(Submit="Unknown"),
        past_row(NodeList="n[1-"),
        past_row(AllocTRES="cpu"),
        past_row(JobIDRaw="7;8"),
    ],
)
def test_a_row_that_cannot_be_read_fails_the_answer(text: str) -> None:
    with pytest.raises(UnreadableError):
        sacct.parse(text, SEPARATOR)


def test_every_field_is_asked_with_its_separator() -> None:
    for argv, columns in (
        (squeue.argv(SEPARATOR), squeue.COLUMNS),
        (sinfo.argv(SEPARATOR), sinfo.COLUMNS),
    ):
        asked = argv[-1].removeprefix("--Format=").split(",")
        assert asked == [f"{column}:{SEPARATOR}" for column in columns]
    assert "--states=all" in squeue.argv(SEPARATOR, finished=True)
    assert "--states=all" not in squeue.argv(SEPARATOR)


@pytest.mark.parametrize(
    "answer", ["", "noise", "ClusterName = x\n", "SLURM_VERSION = 22.05.8\n"]
)
def test_settings_that_are_not_whole(answer: str) -> None:
    with pytest.raises(UnreadableError):
        scontrol.parse_config(answer)


def test_a_ping() -> None:
    assert scontrol.parse_ping("Slurmctld(primary) at a is UP\n")
    both = "Slurmctld(primary) at a is DOWN\nSlurmctld(backup) at b is UP\n"
    assert scontrol.parse_ping(both)
    assert not scontrol.parse_ping("Slurmctld(primary) at UP is DOWN\n")
    assert not scontrol.parse_ping("")


def test_lines_that_are_cut() -> None:
    with pytest.raises(UnreadableError):
        sacctmgr.parse_associations("a|b\n")
    with pytest.raises(UnreadableError):
        sacctmgr.parse_qos("normal|0\n")
    with pytest.raises(UnreadableError):
        sshare.parse("a|b|c\n")
    with pytest.raises(UnreadableError):
        scontrol.parse_partitions("PartitionName=x State=UP\n")
    with pytest.raises(UnreadableError):
        scontrol.parse_partitions("hello\n")
    assert sacctmgr.parse_associations("") == ()


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("slurm-wlm 22.05.8\n", (22, 5)),
        ("slurm 25.11.7\n", (25, 11)),
        ("slurm 23.02.0-0rc1\n", (23, 2)),
    ],
)
def test_versions(text: str, release: tuple[int, int]) -> None:
    assert parse_version(text) == release
    with pytest.raises(UnreadableError):
        parse_version(f"x {text}")


def test_nothing_leaks_into_the_commands() -> None:
    leaky = {
        "PATH": "/opt/slurm/bin",
        "HOME": "/home/alice",
        "SLURM_CONF": "/etc/slurm.conf",
        "SLURM_JOB_ID": "7",
        "SLURM_CPU_BIND": "none",
        "SBATCH_PARTITION": "debug",
        "SQUEUE_FORMAT": "%i",
        "SLURM_TIME_FORMAT": "relative",
        "PMIX_RANK": "0",
        "LD_PRELOAD": "x",
        "SECRET": "x",
    }
    kept = environment.allowed(leaky, None)
    assert set(kept) == {"PATH", "HOME", "SLURM_CONF"}

    assert environment.allowed({}, Path("/x.conf"))["SLURM_CONF"] == "/x.conf"
    assert environment.allowed({}, None)["PATH"].startswith("/usr/local/bin")
    assert environment.for_queries(kept)["TZ"] == "UTC"
    root = environment.of_user(kept, "root")
    assert (root["HOME"], root["USER"]) == ("/root", "root")
