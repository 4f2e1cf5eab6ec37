"""A Hydra sweep through its own submitit launcher, on hpcplat's executor."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("hydra_plugins.hydra_submitit_launcher")

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

APPLICATION = """
import hydra
from hydra.core.config_store import ConfigStore
from hpcplat.hydra_launcher import use_hpcplat

use_hpcplat()
DEFAULTS = [{"override hydra/launcher": "submitit_slurm"}, "_self_"]
ConfigStore.instance().store("config", {"lr": 1.0, "defaults": DEFAULTS})


@hydra.main(version_base="1.3", config_path=None, config_name="config")
def main(config):
    print("learning at", config.lr)
    return config.lr


main()
"""


def test_a_sweep(
    slurm_environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPCPLAT_DATA", str(tmp_path / "data"))
    (tmp_path / "app.py").write_text(APPLICATION)
    settings = ("timeout_min=2", "mem_gb=1", "partition=gpu")
    done = subprocess.run(
        [sys.executable, "app.py", "-m", "lr=0.1,0.2"]
        + [f"hydra.launcher.{setting}" for setting in settings],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Submitit 'hpcplat' sweep output dir" in done.stdout
    logs = sorted(tmp_path.glob("multirun/*/*/.submitit/*/*_0_log.out"))
    found = [
        line
        for path in logs
        for line in path.read_text().splitlines()
        if line.startswith("learning")
    ]
    assert sorted(found) == ["learning at 0.1", "learning at 0.2"]
    assert len(list((tmp_path / "data" / "sbatch").glob("hpc-*.json"))) == 1
