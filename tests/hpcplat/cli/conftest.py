"""What the tests of commands share: a person's own data folder, on the real Slurm."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcplat.cluster import Cluster
from tests.hpcplat.cli.person import Person, stop_resident


@pytest.fixture(scope="module")
def person(cluster: Cluster) -> Iterator[Person]:
    # A socket's path is short: pytest's own folders are too deep for it.
    folder = Path(tempfile.mkdtemp(prefix="hpcplat-cli-"))
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "SBATCH"))}
    env |= {
        **cluster.environment(),
        "HPCPLAT_DATA": str(folder / "data"),
        "HOME": str(folder),
    }
    somebody = Person(cluster, folder, env)
    try:
        yield somebody
    finally:
        cluster.run("scancel", "--me")
        stop_resident(somebody)
        shutil.rmtree(folder)
