"""Slurm that hangs, babbles, says nothing, or is gone: a clear error, never a guess.

The small programs here stand in for Slurm's only where the real one can't be made to
fail on cue; the rest is done to a real cluster.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

from hpcplat.cluster import Cluster
from hpcplat.errors import InvalidError, UnavailableError
from hpcplat.slurm.answers import UnreadableError
from hpcplat.slurm.commandline import CommandLine
from hpcplat.slurm.scheduler import Submission, SubmissionDoubtError

JOB = Submission("#!/bin/sh\nsleep 60\n", "/tmp", ("--hold", "--time=5"))
SINCE = datetime.now(UTC) - timedelta(hours=1)

Programs = Callable[..., CommandLine]


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    """Make a CommandLine over small programs: ``programs(squeue="exit 1")``."""

    def make(timeout: float = 20, **scripts: str) -> CommandLine:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        for name, script in scripts.items():
            (folder / name).write_text(f"#!/bin/sh\n{script}\n")
            (folder / name).chmod(0o755)
        return CommandLine(
            environ={},
            programs=folder,
            timeout=timeout,
            submit_timeout=timeout,
        )

    return make


UP = "echo 'Slurmctld(primary) at ctl is UP'"
DOWN = "echo 'Slurmctld(primary) at ctl is DOWN'"


def test_no_jobs_is_believed_only_of_a_controller_that_is_up(
    programs: Programs,
) -> None:
    assert programs(squeue="true", scontrol=UP).jobs() == ()
    for ping in (DOWN, "true", f"{UP}; exit 1"):
        with pytest.raises(UnavailableError):
            programs(squeue="true", scontrol=ping).jobs()


@pytest.mark.parametrize("noise", ["hello", "1|2|3", "Last login: Mon"])
def test_noise_is_no_answer(programs: Programs, noise: str) -> None:
    say = f"echo '{noise}'"
    lines = programs(
        squeue=say, sacct=say, sinfo=say, scontrol=say, sacctmgr=say, sshare=say
    )
    for ask in (
        lines.jobs,
        lambda: lines.history(SINCE),
        lines.nodes,
        lines.partitions,
        lines.config,
        lines.qos,
        lines.associations,
        lines.shares,
    ):
        with pytest.raises(UnreadableError) as caught:
            ask()
        assert "\n" not in str(caught.value)
    assert not lines.health().controller


def test_nothing_is_no_answer_about_a_cluster(programs: Programs) -> None:
    lines = programs(sinfo="true", scontrol="true")
    for ask in (lines.nodes, lines.partitions, lines.config):
        with pytest.raises(UnreadableError):
            ask()


def test_a_command_that_hangs_is_ended_with_its_children(
    programs: Programs, tmp_path: Path
) -> None:
    hang = f"sleep 600 & echo $! > {tmp_path}/child; wait"
    lines = programs(timeout=0.5, squeue=hang)
    with pytest.raises(UnavailableError, match=r"did not answer within 0\.5 s"):
        lines.jobs()
    child = int((tmp_path / "child").read_text())
    assert not psutil.pid_exists(child) or (
        psutil.Process(child).status() == psutil.STATUS_ZOMBIE
    )
    health = programs(timeout=0.5, scontrol="sleep 60", sacctmgr="exit 1").health()
    assert (health.controller, health.accounting) == (False, False)
    assert "did not answer" in health.detail


def test_a_command_that_is_missing(programs: Programs, tmp_path: Path) -> None:
    lines = programs(squeue="true")
    with pytest.raises(UnavailableError, match="scontrol was not found"):
        lines.jobs()
    with pytest.raises(UnavailableError, match=r"slurm\.conf is not there"):
        CommandLine(tmp_path / "slurm.conf", environ={}).jobs()


@pytest.mark.parametrize(
    "script",
    [
        "sleep 60",
        "kill -9 $$",
        "true",
        "echo hello; echo 12",
        "echo 12; echo bye",
        "echo 'Submitted batch job 12'",
        "echo 12; exit 1",
        "echo 'our wrapper broke' >&2; exit 1",
    ],
)
def test_a_doubtful_submission_is_told_from_a_refusal(
    programs: Programs, script: str
) -> None:
    with pytest.raises(SubmissionDoubtError, match="may have taken the job"):
        programs(timeout=0.5, sbatch=script).submit(JOB)


def test_a_refusal_stands_though_nobody_can_say_what_there_is(
    programs: Programs,
) -> None:
    words = "sbatch: error: Batch job submission failed: Invalid qos specification"
    lines = programs(sbatch=f"echo '{words}' >&2; exit 1", sacctmgr="exit 1")
    with pytest.raises(InvalidError, match="Invalid qos"):
        lines.submit(JOB)


def test_many_ids_are_asked_in_pieces(programs: Programs, tmp_path: Path) -> None:
    lines = programs(sacct=f'echo "$@" >> {tmp_path}/asked')
    assert lines.history(SINCE, range(1, 25_001)) == ()
    asked = (tmp_path / "asked").read_text().splitlines()
    assert len(asked) == 3
    assert sum(line.count(",") for line in asked) > 24_000
    assert all(len(line) < 128 * 1024 for line in asked)


def test_the_environment_of_the_job_is_ours_to_choose(
    programs: Programs, tmp_path: Path
) -> None:
    folder = tmp_path / "bin"
    programs(sbatch=f"env > {tmp_path}/env; cat > {tmp_path}/script; echo 12")
    leaky = {"SLURM_CPU_BIND": "none", "SBATCH_QOS": "x", "HOME": "/h", "PMI_FD": "3"}
    CommandLine(environ=leaky, programs=folder).submit(JOB)
    env = dict(
        line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines()
    )
    assert env["HOME"] == "/h"
    assert not {name for name in env if name.startswith(("SLURM", "SBATCH", "PMI"))}
    assert (tmp_path / "script").read_text() == JOB.script


def commandline(cluster: Cluster, **fields: object) -> CommandLine:
    environ = os.environ | cluster.environment()
    environ |= {"SBATCH_PARTITION": "nope", "SLURM_JOB_ID": "1", "SQUEUE_FORMAT": "%i"}
    return CommandLine(
        cluster.folder.slurm_conf,
        environ=environ,
        **fields,  # type: ignore[arg-type] # timeouts and programs
    )


@pytest.mark.slurm
def test_a_caller_inside_of_an_allocation_changes_nothing(cluster: Cluster) -> None:
    lines = commandline(cluster)
    job = lines.submit(JOB)
    try:
        found = [each for each in lines.jobs() if each.job_id == job.job_id]
        assert found[0].partition == cluster.spec.partition
    finally:
        lines.cancel(str(job.job_id))


@pytest.mark.slurm
def test_a_submission_in_doubt_is_found_by_its_comment(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The real sbatch takes the job; its answer never comes."""
    real = cluster.folder.programs / "sbatch"
    real = real if real.exists() else Path("/usr/bin/sbatch")
    wrapper = tmp_path / "sbatch"
    wrapper.write_text(f'#!/bin/sh\n{real} "$@" > /dev/null\nsleep 60\n')
    wrapper.chmod(0o755)
    slow = commandline(cluster, programs=tmp_path, submit_timeout=3)
    key = Submission(JOB.script, "/tmp", (*JOB.options, "--comment=hpcplat:doubt"))
    with pytest.raises(SubmissionDoubtError):
        slow.submit(key)
    lines = commandline(cluster)
    found = [job for job in lines.jobs() if job.comment == "hpcplat:doubt"]
    assert len(found) == 1
    lines.cancel(found[0].address)


@pytest.mark.slurm
@pytest.mark.slow
def test_daemons_that_are_gone(fresh_cluster: Callable[..., Cluster]) -> None:
    # How long the commands try to reach a controller that is not there, in seconds.
    cluster = fresh_cluster(spares=0, settings={"MessageTimeout": "2"})
    lines = commandline(cluster)
    job = lines.submit(JOB)
    _stop(cluster, "slurmdbd")
    health = lines.health()
    assert (health.controller, health.accounting) == (True, False)
    assert health.detail
    assert [each.job_id for each in lines.jobs()] == [job.job_id]
    for ask in (lambda: lines.history(SINCE), lines.qos, lines.associations):
        with pytest.raises(UnavailableError):
            ask()
    _stop(cluster, "slurmctld")
    assert not lines.health().controller
    for question in (lines.jobs, lines.nodes, lines.partitions, lines.config):
        with pytest.raises(UnavailableError):
            question()
    with pytest.raises(UnavailableError) as caught:
        lines.submit(JOB)
    assert not isinstance(caught.value, SubmissionDoubtError)
    with pytest.raises(UnavailableError):
        lines.cancel(str(job.job_id))


def _stop(cluster: Cluster, daemon: str) -> None:
    pid = int((cluster.folder.run / f"{daemon}.pid").read_text())
    process = psutil.Process(pid)
    process.send_signal(signal.SIGKILL)
    psutil.wait_procs([process], timeout=10)
