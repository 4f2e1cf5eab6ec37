"""Workspaces, quotas and usage on the command line: bars, pairs, and whole commands."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpcplat.cli import quota


@pytest.mark.parametrize(
    ("used", "allowed", "filled"),
    [(0, 8, 0), (4, 8, 10), (8, 8, 20), (99, 8, 20), (0, 0, 20), (1, 1000, 0)],
)
def test_a_bar_is_full_at_the_limit(used: int, allowed: int, filled: int) -> None:
    drawn = quota.bar(used, allowed)
    assert drawn.count("█") == filled
    assert len(drawn) == quota.WIDTH


@pytest.mark.parametrize(
    ("what", "used", "allowed", "words"),
    [
        ("gres/gpu", 2, 8, "2/8"),
        ("gres/gpu minutes", 90, 6000, "1.5/100"),
        ("time", 0, 172_800, "2-00:00:00"),
    ],
)
def test_what_is_used_is_said_in_peoples_units(
    what: str, used: int, allowed: int, words: str
) -> None:
    row = {"what": what, "used": used, "allowed": allowed}
    assert quota.LIMITS[-1].cell(row) == words


def hpcplat(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {
        **{k: v for k, v in os.environ.items() if not k.startswith("HPCPLAT")},
        "HPCPLAT_DATA": str(folder),
        "HPCPLAT_RESIDENT": "off",
        "HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder),
    }
    return subprocess.run(
        [sys.executable, "-m", "hpcplat.cli.main", *words],
        capture_output=True,
        text=True,
        check=False,
        env=environ,
    )


@pytest.mark.slow
def test_a_workspace_from_its_beginning_to_its_end(tmp_path: Path) -> None:
    assert hpcplat(tmp_path, "workspace", "make", "nlp").returncode == 0
    done = hpcplat(tmp_path, "workspace", "add-member", "nlp", "games", "--role=owner")
    assert done.stdout == "games is owner in nlp.\n"
    shown = json.loads(hpcplat(tmp_path, "workspace", "show", "nlp", "--json").stdout)
    assert shown["members"] == [{"user": "games", "role": "owner"}]
    wrong = hpcplat(tmp_path, "quota", "set", "nlp", "gpus")
    assert wrong.returncode == 1
    assert "Write NAME=VALUE" in wrong.stderr
    assert hpcplat(tmp_path, "workspace", "close", "nlp").returncode == 0
    audit = hpcplat(tmp_path, "workspace", "audit").stdout.splitlines()
    assert [line.split("\t")[3].split()[0] for line in audit] == [
        *("workspace.close", "member.set", "workspace.make")
    ]


@pytest.mark.slurm
def test_usage_is_csv_for_programs(
    slurm_environment: dict[str, str], tmp_path: Path
) -> None:
    done = hpcplat(tmp_path, "usage", "--since=2026-01-01", "--format=csv")
    assert done.returncode == 0, done.stderr
    reader = csv.DictReader(io.StringIO(done.stdout))
    assert reader.fieldnames is not None
    assert list(reader.fieldnames) == [
        *("workspace", "user", "project", "jobs"),
        *("gpu_hours_asked", "gpu_hours", "gpu_hours_idle", "gpu_hours_unknown"),
        *("cpu_hours", "price"),
    ]
