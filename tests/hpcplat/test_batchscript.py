from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcplat.batchscript import Part, render, sbatch_quoted
from hpcplat.jobs import JobSpec, spec_of
from hpcplat.jobs.array import ArrayChunk
from hpcplat.runfolder import RunFolder
from hpcplat.sitepolicy import SitePolicy

FOLDER = RunFolder(Path("/shared/runs/r1"))


def _spec(**values: Any) -> JobSpec:  # noqa: ANN401 - the spec checks them
    return spec_of({"name": "small", "command": ["true"], **values})


def _script(
    spec: JobSpec, policy: SitePolicy | None = None, part: Part | None = None
) -> str:
    return render(spec, FOLDER, policy or SitePolicy(), "k1", part or Part())


def _options(script: str) -> list[str]:
    return re.findall(r"^#SBATCH (.*)$", script, re.MULTILINE)


def test_what_every_script_says() -> None:
    assert _options(_script(_spec())) == [
        "--job-name=small",
        "--comment=hpcplat:k1",
        "--nodes=1",
        "--ntasks-per-node=1",
        "--cpus-per-task=1",
        "--time=01:00:00",
        "--no-requeue",
        "--signal=B:USR2@120",
        "--chdir=/shared/runs/r1",
        "--output=/shared/runs/r1/logs/slurm.log",
        "--open-mode=append",
        "--export=ALL",
    ]


def test_what_a_large_job_says() -> None:
    spec = _spec(
        kind="train",
        workspace="nlp",
        resources={
            "nodes": 2,
            "spare_nodes": 1,
            "gpus_per_node": 4,
            "gpu_type": "h100",
            "cpus_per_task": 3,
            "memory": "64G",
            "time": "1d12h",
            "partition": "gpu,big",
            "qos": "prod",
            "constraint": "hbm&ib",
            "exclude": ["n7", "n[8-9]"],
            "reservation": "r",
            "exclusive": True,
        },
        sbatch={"mail-type": "END", "overcommit": True},
    )
    assert _options(_script(spec)) == [
        "--job-name=small",
        "--comment=hpcplat:k1",
        "--account=nlp",
        "--nodes=3",
        "--ntasks-per-node=1",
        "--cpus-per-task=12",
        "--gres=gpu:h100:4",
        "--mem=64G",
        "--partition=gpu,big",
        "--qos=prod",
        '--constraint="hbm&ib"',
        '--exclude="n7,n[8-9]"',
        "--reservation=r",
        "--exclusive",
        "--time=1-12:00:00",
        "--requeue",
        "--signal=B:USR2@120",
        "--no-kill",
        "--chdir=/shared/runs/r1",
        "--output=/shared/runs/r1/logs/slurm.log",
        "--open-mode=append",
        "--export=ALL",
        "--mail-type=END",
        "--overcommit",
    ]


def test_srun_says_the_cpus_again_and_outlives_a_node() -> None:
    resources = {"nodes": 2, "gpus_per_node": 4, "cpus_per_task": 3}
    script = _script(_spec(resources=resources))
    (line,) = (line for line in script.splitlines() if " srun " in line)
    for word in ("--nodes=2", "--ntasks=2", "--cpus-per-task=12", "--no-kill"):
        assert f" {word} " in line


@pytest.mark.parametrize(
    ("gpu_type", "policy", "option"),
    [
        (None, SitePolicy(), "--gres=gpu:2"),
        ("h100", SitePolicy(), "--gres=gpu:h100:2"),
        (None, SitePolicy(gpu_option="gpus-per-node"), "--gpus-per-node=2"),
        ("h100", SitePolicy(gpu_option="gpus-per-node"), "--gpus-per-node=h100:2"),
        (None, SitePolicy(gpu_gres="accelerator"), "--gres=accelerator:2"),
    ],
)
def test_one_option_asks_for_gpus_in_the_sites_spelling(
    gpu_type: str | None, policy: SitePolicy, option: str
) -> None:
    spec = _spec(resources={"gpus_per_node": 2, "gpu_type": gpu_type})
    found = [o for o in _options(_script(spec, policy)) if "gres" in o or "gpus" in o]
    assert found == [option]


def test_the_time_is_always_finite() -> None:
    assert "--time=01:00:00" in _options(_script(_spec()))
    policy = SitePolicy(default_time="2d")  # type: ignore[arg-type] # as settings say it
    assert "--time=2-00:00:00" in _options(_script(_spec(), policy))


def test_a_short_job_is_not_warned_as_it_starts() -> None:
    script = _script(_spec(resources={"time": "4m"}))
    assert "--signal=B:USR2@60" in _options(script)
    script = _script(_spec(recovery={"warning": "0s"}))
    assert not any(option.startswith("--signal") for option in _options(script))


def test_a_part_of_an_array_knows_its_offset() -> None:
    part = Part(chunk=ArrayChunk("0-99%5", 1001, 100))
    script = _script(_spec(array="1001-1100%5"), part=part)
    assert '--array="0-99%5"' in _options(script)
    assert "--output=" + '"/shared/runs/r1/logs/slurm-%a.log"' in _options(script)
    assert "task=$(( SLURM_ARRAY_TASK_ID + 1001 ))" in script
    assert script.count('--task "$task"') == 2


def test_an_attempt_counts_on_from_the_submission() -> None:
    script = _script(_spec(), part=Part(first_attempt=4))
    assert "attempt=$(( 4 + ${SLURM_RESTART_COUNT:-0} ))" in script


def test_dependencies_that_fail_end_the_wait() -> None:
    script = _script(_spec(), part=Part(dependency="afterok:12,afterany:13"))
    found = _options(script)
    assert "--dependency=afterok:12,afterany:13" in found
    assert "--kill-on-invalid-dep=yes" in found


def test_the_account_and_nodes_to_leave_out_come_with_the_part() -> None:
    spec = _spec(workspace="nlp", resources={"exclude": "n1"})
    found = _options(_script(spec, part=Part(account="team-nlp", exclude=("n2",))))
    assert "--account=team-nlp" in found
    assert "--exclude=n1,n2" in found


def test_the_key_is_in_the_name_where_accounting_keeps_no_comment() -> None:
    script = _script(_spec(), SitePolicy(key_in_name=True))
    assert "--job-name=small:k1" in _options(script)


def test_environments_are_set_up_in_the_shell() -> None:
    environment = {"modules": ["cuda/12.4", "nccl"], "venv": "/home/it's me/venv"}
    script = _script(
        _spec(environment=environment), SitePolicy(module_setup="/etc/modules.sh")
    )
    assert "|| . /etc/modules.sh\n" in script
    assert "\nmodule load cuda/12.4 || fail " in script
    assert "\n. '/home/it'\"'\"'s me/venv/bin/activate' || fail " in script


def test_conda_is_set_up_in_the_shell() -> None:
    spec = _spec(environment={"conda": "torch"})
    assert 'eval "$(conda shell.bash hook)"' in _script(spec)
    script = _script(spec, SitePolicy(conda_setup="/opt/conda/etc/profile.d/conda.sh"))
    assert "\n. /opt/conda/etc/profile.d/conda.sh || fail" in script
    assert "\nconda activate torch || fail" in script


def test_pyxis_containers_are_sruns_to_start() -> None:
    container = {
        "runtime": "pyxis",
        "image": "nvcr.io#nvidia/pytorch:24.05-py3",
        "mounts": ["/data:/data:ro"],
        "folder": "/work",
    }
    script = _script(_spec(environment={"container": container}))
    assert "'--container-image=nvcr.io#nvidia/pytorch:24.05-py3'" in script
    mounts = "--container-mounts=/shared/runs/r1:/shared/runs/r1,/data:/data:ro"
    assert mounts in script
    assert "--container-workdir=/work" in script


def test_staging_runs_outside_of_a_container_that_sees_its_folder() -> None:
    container = {"runtime": "pyxis", "image": "i.sqsh"}
    script = _script(
        _spec(
            data="d@v1",
            staging={"folder": "/local disk"},
            environment={"container": container},
        )
    )
    before, _, after = script.partition("wait_for_child\nchild=\n")
    assert "storage.staging_step" in before
    assert "--container" not in before
    mounts = (
        "--container-mounts=/shared/runs/r1:/shared/runs/r1,/local disk:/local disk"
    )
    assert f"'{mounts}'" in after
    assert "\ndisk='/local disk'\n" in script


def test_no_variable_and_no_secret_stands_in_the_script() -> None:
    environment = {"variables": {"A": "mine alone"}, "secrets": {"B": "env:TOKEN"}}
    script = _script(_spec(environment=environment))
    assert "mine alone" not in script
    assert "TOKEN" not in script


def test_the_same_request_gives_the_same_bytes() -> None:
    assert _script(_spec()) == _script(_spec())


_printable = st.text(st.characters(exclude_categories=["C", "Zl", "Zp"]), max_size=40)


@given(name=_printable.map(str.strip).filter(bool), folder=_printable)
def test_every_script_is_sound_bash(name: str, folder: str) -> None:
    spec = _spec(name=name, environment={"venv": f"/v{name}", "modules": ["a/1"]})
    place = RunFolder(Path("/shared") / folder.replace("/", "_"))
    script = render(spec, place, SitePolicy(), "k1")
    checked = subprocess.run(
        ["bash", "-n"], input=script.encode(), capture_output=True, check=False
    )
    assert checked.returncode == 0, checked.stderr
    assert checked.stderr == b""


@given(_printable)
def test_quoted_options_stay_on_one_line(value: str) -> None:
    assert "\n" not in sbatch_quoted(f"--job-name={value}")


def _run_start(
    tmp_path: Path, child: str, signals: str, staging: str | None = None
) -> int:
    """Run the script's last part with a stand-in for the coordinator; return its status.

    ``signals`` is a shell command that runs beside it, with the script's pid in $PID.
    ``staging`` is what srun does before it, if anything is staged.
    """
    python, srun = str(tmp_path / "python"), str(tmp_path / "srun")
    policy = SitePolicy(python=python, srun=srun)
    for path, content in ((python, child), (srun, staging or "")):
        Path(path).write_text(f"#!/bin/bash\n{content}\n")
        Path(path).chmod(0o755)
    script = tmp_path / "script"
    fields = {"data": "d@v1", "staging": True} if staging is not None else {}
    script.write_text(render(_spec(**fields), RunFolder(tmp_path), policy, "k1"))
    process = subprocess.Popen(["bash", script])
    subprocess.run(
        ["bash", "-c", signals.replace("$PID", str(process.pid))], check=True
    )
    return process.wait(30)


def test_the_batch_shell_gives_the_childs_exit_code(tmp_path: Path) -> None:
    assert _run_start(tmp_path, "exit 42", ":") == 42
    assert _run_start(tmp_path, "kill -9 $$", ":") == 137


def test_the_batch_shell_passes_signals_on_and_waits_again(tmp_path: Path) -> None:
    child = (
        "trap 'echo usr2 >>seen' USR2; trap 'echo term >>seen; exit 7' TERM\n"
        f"cd {tmp_path}; touch up; while :; do sleep 0.05; done"
    )
    signals = (
        f"while [ ! -e {tmp_path}/up ]; do sleep 0.05; done; kill -USR2 $PID\n"
        "sleep 0.3; kill -USR2 $PID; sleep 0.3; kill -TERM $PID"
    )
    assert _run_start(tmp_path, child, signals) == 7
    assert (tmp_path / "seen").read_text() == "usr2\nusr2\nterm\n"


def test_staging_comes_first_and_may_fail(tmp_path: Path) -> None:
    order = tmp_path / "order"
    child = f'echo "$HPCPLAT_STAGED" >>{order}; exit 42'
    staging = f'echo "${{!#}}" >>{order}; exit 1'
    assert _run_start(tmp_path, child, ":", staging) == 42
    disk, staged = order.read_text().splitlines()
    assert staged == f"{disk}/hpcplat-staged-{os.getuid()}"


def test_damage_found_in_staging_ends_the_job(tmp_path: Path) -> None:
    reason = RunFolder(tmp_path).attempt(1).not_staged
    staging = f"echo damaged >{reason}; exit 1"
    assert _run_start(tmp_path, f"touch {tmp_path}/started", ":", staging) == 1
    assert "damaged" in RunFolder(tmp_path).attempt(1).batch_log.read_text()
    assert not (tmp_path / "started").exists()


def test_a_job_that_is_ended_while_it_stages_starts_nothing(tmp_path: Path) -> None:
    staging = (
        f"trap 'exit 143' TERM; touch {tmp_path}/up\n"
        "for _ in {1..600}; do sleep 0.05; done"
    )
    signals = f"while [ ! -e {tmp_path}/up ]; do sleep 0.05; done; kill -TERM $PID"
    child = f"touch {tmp_path}/started"
    assert _run_start(tmp_path, child, signals, staging) == 143
    assert not (tmp_path / "started").exists()


@pytest.mark.slow
def test_a_signal_as_the_child_ends_does_not_change_the_exit_code(
    tmp_path: Path,
) -> None:
    """Without the file, bash 5.2 gave 255 or 140 in one of twenty such moments."""
    up, code = tmp_path / "up", RunFolder(tmp_path).attempt(1).exit_code
    for delay in range(40):
        up.unlink(missing_ok=True)
        child = f"trap : USR2; touch {up}; sleep 0.05; echo 42 >{code}; exit 42"
        signals = (
            f"while [ ! -e {up} ]; do :; done; sleep 0.0{40 + delay // 2};"
            " kill -USR2 $PID 2>/dev/null; :"
        )
        assert _run_start(tmp_path, child, signals) == 42, delay
