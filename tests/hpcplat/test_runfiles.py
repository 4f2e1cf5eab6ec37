from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

from hpcplat.jobs import JobSpec, spec_of
from hpcplat.launchplan import read_plan
from hpcplat.runfiles import (
    run_files,
    secret_names,
    secrets_file,
    write_files,
)
from hpcplat.runfolder import RunFolder
from hpcplat.sitepolicy import SitePolicy

POLICY = SitePolicy(python="/opt/hpcplat/bin/python")


def _spec(**values: Any) -> JobSpec:  # noqa: ANN401 - the spec checks them
    return spec_of({"name": "small", **values})


def _written(spec: JobSpec, root: Path) -> RunFolder:
    folder = RunFolder(root / "run")
    write_files(folder, run_files(spec, folder, POLICY, "k1"))
    return folder


def test_the_spec_in_the_folder_reads_back(tmp_path: Path) -> None:
    spec = _spec(command="echo hi", resources={"time": "2h"})
    folder = _written(spec, tmp_path)
    assert JobSpec.model_validate_json(folder.spec.read_text()) == spec


def test_the_plan_reads_back(tmp_path: Path) -> None:
    spec = _spec(
        command=["a", "b c"],
        resources={"nodes": 2, "gpus_per_node": 4, "spare_nodes": 1},
        environment={"variables": {"A": "é\n"}, "folder": "/work"},
        outputs="x.pt",
        recovery={"grace": "3s"},
    )
    plan = read_plan(_written(spec, tmp_path).plan)
    assert plan.argv == ("a", "b c")
    assert (plan.nodes, plan.spare_nodes, plan.world) == (2, 1, 8)
    assert plan.variables == {"A": "é\n"}
    assert (plan.folder, plan.outputs, plan.grace) == ("/work", ("x.pt",), 3.0)


def test_a_script_becomes_a_program_file(tmp_path: Path) -> None:
    folder = _written(_spec(command="echo hi"), tmp_path)
    assert folder.command.read_text() == "echo hi"
    assert stat.S_IMODE(folder.command.stat().st_mode) == 0o755
    assert read_plan(folder.plan).argv == ("/bin/bash", str(folder.command))
    own = _written(_spec(command="#!/usr/bin/env python3\n"), tmp_path)
    assert read_plan(own.plan).argv == (str(own.command),)


def test_the_rank_map_is_written_before_the_job_starts(tmp_path: Path) -> None:
    spec = _spec(
        command=["true"],
        resources={"nodes": 2, "gpus_per_node": 2},
        parallelism={"tensor": 2, "pipeline": 2},
    )
    places = json.loads(_written(spec, tmp_path).rank_map.read_text())
    assert [place["tensor"] for place in places] == [0, 1, 0, 1]
    assert [place["pipeline"] for place in places] == [0, 0, 1, 1]
    assert [place["node"] for place in places] == [0, 0, 1, 1]


def test_apptainer_runs_the_command_with_the_run_folder_mounted(tmp_path: Path) -> None:
    container = {
        "image": "/images/torch.sif",
        "mounts": ["/data:/data:ro"],
        "folder": "/work",
        "options": ["--cleanenv"],
    }
    spec = _spec(
        command=["python", "train.py"],
        environment={"container": container},
        resources={"gpus_per_node": 1},
    )
    folder = _written(spec, tmp_path)
    assert read_plan(folder.plan).argv == (
        "apptainer",
        "exec",
        "--nv",
        f"--bind={folder.root}",
        "--bind=/data:/data:ro",
        "--pwd=/work",
        "--cleanenv",
        "/images/torch.sif",
        "python",
        "train.py",
    )


def test_a_preset_is_started_by_its_launcher(tmp_path: Path) -> None:
    folder = _written(_spec(kind="train", preset="gpt-tiny"), tmp_path)
    plan = read_plan(folder.plan)
    assert plan.argv[:4] == (
        "/opt/hpcplat/bin/python",
        "-I",
        "-m",
        "launchers.megatron",
    )
    assert plan.keep_secrets  # a training run may be run again


def test_secrets_are_the_owners_alone_and_in_no_other_file(tmp_path: Path) -> None:
    references = {"A": "env:TOKEN", "B": "file:/etc/token"}
    spec = _spec(command=["true"], environment={"secrets": references})
    assert secret_names(spec) == {"A": "TOKEN"}
    folder = _written(spec, tmp_path)
    write_files(folder, [secrets_file(folder, {"A": "hunter2"})])
    assert stat.S_IMODE(folder.secrets.stat().st_mode) == 0o600
    others = [p for p in folder.root.rglob("*") if p.is_file() and p != folder.secrets]
    assert not any("hunter2" in path.read_text() for path in others)


def test_the_script_comes_last_so_that_a_folder_with_one_is_whole() -> None:
    folder = RunFolder(Path("/r"))
    files = run_files(_spec(command="true"), folder, POLICY, "k1")
    assert files[-1].path == folder.script
