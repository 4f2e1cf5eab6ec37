"""The README's commands, run as they are written: on the real Slurm, by a shell."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.generate import DOCS
from tests.hpcplat.cli.person import Person, stop_resident

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

README = DOCS.parent / "README.md"
PARTS = (
    "Your first job",
    "Your first dataset",
    "Your first training",
    "Your sbatch scripts",
)
SBATCH_SCRIPT = "#!/bin/sh\nsrun hostname\n"


@pytest.fixture
def shell(person: Person) -> Iterator[Person]:
    """Somebody in a folder with the docs, and a script of their own."""
    (person.folder / "docs").symlink_to(DOCS)
    (person.folder / "train.sh").write_text(SBATCH_SCRIPT)
    person.env["PATH"] = f"{Path(sys.executable).parent}:{person.env['PATH']}"
    yield person
    stop_resident(person)


def commands(title: str) -> list[str]:
    """Return the lines after a dollar sign below a title."""
    text = README.read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]
    return re.findall(r"^\$ (.*)$", text, re.MULTILINE)


def test_every_command_works(shell: Person) -> None:
    """One part after the other: the training takes the dataset's name."""
    lines = [line for title in PARTS for line in commands(title)]
    assert len(lines) > 10
    done = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", "\n".join(lines)],
        env=shell.env,
        cwd=shell.folder,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "COMPLETED" in done.stdout
    assert re.search(r"^Submitted batch job \d+$", done.stdout, re.MULTILINE)
    assert shell.out("show", "gpt", "--json").count('"COMPLETED"')
