"""The page "Bring your data", run as written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

PAGE = Path(__file__).parents[2] / "docs/how-to/bring-your-data.md"


@pytest.mark.slow
def test_every_command_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"```bash\n(.*?)```", PAGE.read_text(), re.DOTALL)
    commands = [block for block in blocks if "pip install" not in block]
    script = "set -euo pipefail\n" + "\n".join(commands)
    script = script.replace("/tmp/staged-data", str(tmp_path / "staged"))
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    if "Could not find a version" in done.stderr or "ConnectionError" in done.stderr:
        pytest.skip("no package index can be reached from here")
    assert done.returncode == 0, done.stderr[-2000:]
    (printed,) = re.findall(r"```text\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert printed in done.stdout
    with Image.open(tmp_path / "digits.png") as sheet:
        assert sheet.size == (8 * 58 + 2, 4 * 58 + 2)
