"""An ingest as a job on several nodes of a real Slurm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcplat.cluster import Cluster
from hpcplat.datasets.version import DatasetVersion, open_version
from storage.ingest.options import TextOptions
from storage.ingest.tokens import TextRecipe
from storage.verifying import verify

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

HPCPLAT = Path(sys.executable).with_name("hpcplat")


def test_three_nodes_make_the_version_that_one_process_makes(
    cluster: Cluster,
    tmp_path: Path,
    ingest_text: Callable[..., DatasetVersion],
) -> None:
    folder = tmp_path / "corpus with spaces"
    folder.mkdir()
    for number in range(4):  # each too large to be one task with another
        lines = ({"text": f"{number} {row} it's" * 1900} for row in range(1000))
        (folder / f"{number}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    alone = ingest_text([folder])
    env = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "HPC"))},
        **cluster.environment(),
        "HPCPLAT_DATA": str(tmp_path / "data"),
        "HPCPLAT_RESIDENT": "off",
    }

    def run(*words: str) -> str:
        done = subprocess.run(
            [str(HPCPLAT), *words],
            env=env,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == 0, done
        return done.stdout

    words = ["--name", "made", "--text", folder.name, "--processes", "1"]
    out = run("data", "ingest", *words, "--nodes", "3", "--tag", "v1")
    assert out.startswith("Submitted job")
    tag = tmp_path / "data/datasets/made/tags/v1"
    deadline = time.monotonic() + 180
    while not tag.exists():
        assert time.monotonic() < deadline, cluster.run("sacct", "-X").stdout
        time.sleep(0.5)
    version = open_version("made@v1", tmp_path / "data" / "datasets")
    assert version.digest == alone.digest
    assert len(TextRecipe(TextOptions()).tasks([str(folder)])) == 4
    assert verify(version.folder, 1) == []
