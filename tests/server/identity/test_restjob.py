"""Batch scripts as JSON for slurmrestd: old and new versions; unknown options refused."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from hpcplat.errors import InvalidError, UnavailableError
from hpcplat.jobs import spec_of
from hpcplat.runfiles import RunFile, run_files
from hpcplat.runfolder import RunFolder
from hpcplat.sitepolicy import SitePolicy
from hpcplat.slurm.scheduler import SubmissionDoubtError
from server.identity import restjob, throughrest

OLD, NEW = (0, 0, 38), (0, 0, 42)
SCRIPT = """#!/bin/bash
#SBATCH --job-name="a b"
#SBATCH --nodes=2
#SBATCH --cpus-per-task=4
#SBATCH --gres=gpu:h100:4
#SBATCH --mem=64G
#SBATCH --time=01:30:30
#SBATCH --signal=B:USR2@60
#SBATCH --requeue
#SBATCH --no-kill
#SBATCH --dependency=afterok:7
#SBATCH --kill-on-invalid-dep=yes
"""
BOTH = {
    "name": "a b",
    "cpus_per_task": 4,
    "requeue": True,
    "dependency": "afterok:7",
    "kill_on_invalid_dependency": True,
}


def described(script: str, version: tuple[int, ...]) -> dict[str, Any]:
    return restjob.description(script, "/home/alice", "/usr/bin", version)


def test_the_old_form_has_flat_values() -> None:
    job = described(SCRIPT, OLD)
    assert {**job, **BOTH} == job
    assert job["nodes"] == [2, 2]
    assert job["gres"] == "gpu:h100:4"
    assert job["memory_per_node"] == 65536
    assert job["time_limit"] == 91  # rounded up, never down
    assert job["environment"] == {"PATH": "/usr/bin"}
    assert "signal" not in job  # its B: is refused: see the script that warns itself


def test_the_new_form_says_whether_a_number_is_set() -> None:
    job = described(SCRIPT, NEW)
    assert {**job, **BOTH} == job
    assert job["nodes"] == "2"
    assert job["tres_per_node"] == "gres/gpu:h100:4"
    assert job["time_limit"] == {"set": True, "infinite": False, "number": 91}
    assert job["environment"] == ["PATH=/usr/bin"]
    assert job["kill_warning_signal"] == "USR2"


@pytest.mark.slow
def test_where_slurm_does_not_warn_the_script_does(tmp_path: Path) -> None:
    assert restjob.warning(SCRIPT, NEW) == ""
    assert restjob.warning("#!/bin/bash\n#SBATCH --time=01:00:00\n", OLD) == ""
    short = SCRIPT.replace("01:30:30", "00:01:01")
    folder = RunFolder(tmp_path / "run")
    patient = "trap 'echo warned; exit 7' USR2\nsleep 60 & wait\n"
    script = restjob.carrying(
        [RunFile(folder.script, f"#!/bin/bash\n{patient}")],
        folder,
        restjob.warning(short, OLD),
    )
    done = subprocess.run(
        ["/bin/bash"], input=script, capture_output=True, text=True, check=False
    )
    assert done.returncode == 7
    assert (folder.logs / "slurm.log").read_text() == "warned\n"


@pytest.mark.parametrize("owner", ["games", "root"])
@pytest.mark.skipif(os.geteuid() != 0, reason="the folder is another user's")
def test_a_folder_that_somebody_else_laid_out_is_not_filled(
    tmp_path: Path, owner: str
) -> None:
    tmp_path.chmod(0o777)
    shutil.chown(tmp_path, owner)
    folder = RunFolder(tmp_path / "run")
    script = restjob.carrying([RunFile(folder.script, "touch ran\n")], folder)
    done = subprocess.run(
        ["/bin/bash"], input=script, capture_output=True, text=True, check=False
    )
    assert (done.returncode == 0) is (owner == "root"), done.stderr
    assert (folder.root / "ran").exists() is (owner == "root")


@pytest.mark.parametrize(
    ("status", "words", "kind"),
    [
        (400, "Invalid SIGNAL specification", InvalidError),
        (500, "Unexpected message received", SubmissionDoubtError),
        (401, "Authentication failure", UnavailableError),
    ],
)
def test_what_slurmrestd_did_not_understand_it_did_not_take(
    status: int, words: str, kind: type[Exception]
) -> None:
    answer = httpx.Response(status, json={"errors": [{"error": words}]})
    with pytest.raises(kind):
        throughrest.submitted(answer)


@pytest.mark.parametrize("version", [OLD, NEW])
@pytest.mark.parametrize("option", ["--uid=0", "--wckey=x", "--licenses=a", "--xyz"])
def test_an_option_that_would_get_lost_is_refused(
    version: tuple[int, ...], option: str
) -> None:
    with pytest.raises(InvalidError):
        described(f"#!/bin/bash\n#SBATCH {option}\n", version)


@pytest.mark.parametrize("version", [OLD, NEW])
def test_every_option_of_our_own_scripts_is_known(version: tuple[int, ...]) -> None:
    spec = spec_of(
        {
            "name": "x",
            "command": ["true"],
            "array": "0-3",
            "resources": {
                "nodes": 1,
                "gpus_per_node": 2,
                "gpu_type": "h100",
                "memory": "1G",
                "time": "1h",
                "partition": "gpu",
                "qos": "spot",
                "constraint": "ib",
                "exclusive": True,
                "reservation": "r",
            },
        }
    )
    script = run_files(spec, RunFolder(Path("/r/1")), SitePolicy(), "k")[-1].content
    job = described(script, version)
    assert job["qos"] == "spot"


def test_the_carried_files_are_written_byte_for_byte(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "it's $HOME `id` ä")
    content = "a'b\"c$d`e`\\n\nä\x07 EOF\n"
    files = [
        RunFile(folder.spec, content, 0o640),
        RunFile(folder.script, '#!/bin/bash\npwd; echo "$0"\n'),
    ]
    script = restjob.carrying(files, folder)
    done = subprocess.run(
        ["/bin/bash"], input=script, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert folder.spec.read_text() == content
    assert folder.spec.stat().st_mode & 0o777 == 0o640
    log = (folder.logs / "slurm.log").read_text()
    assert log.splitlines() == [str(folder.root), str(folder.script)]
