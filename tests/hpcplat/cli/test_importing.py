"""`hpcplat import`: a spec on the standard output, notes on the standard error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcplat.cli.main import main
from hpcplat.jobs import parse, spec_of

SCRIPT = """#!/bin/bash
#SBATCH --job-name=tiny --gres=gpu:h100:4 -N2 --ntasks-per-node=4
#SBATCH --output=log.txt
module load cuda
srun python train.py
"""


def test_yaml(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "tiny.sh"
    script.write_text(SCRIPT)
    assert main(["import", str(script)]) == 0
    shown = capsys.readouterr()
    assert "command: |\n  module load cuda\n  exec python train.py\n" in shown.out
    assert shown.out.startswith("# The lines ahead of srun")
    assert "tiny.sh: --output=log.txt is not taken over." in shown.err
    assert spec_of(parse(shown.out)).resources.world == 8


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "tiny.sh"
    script.write_text(SCRIPT)
    assert main(["import", "--json", str(script)]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["spec"]["name"] == "tiny"
    assert len(shown["notes"]) == 2


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, "is not there. Check the name."),
        (b"echo hi\n", "does not begin with #!. Put #!/bin/bash on its first line."),
        (b"#!/bin/sh\n\xff\n", "is not UTF-8. Save it as UTF-8."),
        (b"#!/bin/sh\n#SBATCH -J 'x\necho\n", "Line 2: a quote (') is not closed."),
    ],
)
def test_a_bad_script_is_one_line(
    content: bytes | None,
    line: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    script = tmp_path / "x.sh"
    if content is not None:
        script.write_bytes(content)
    assert main(["import", str(script)]) == 1
    shown = capsys.readouterr()
    assert line in shown.err
    assert shown.err.count("\n") == 1
