"""Training beside its alternatives: ``python -m tests.benchmarks.training [PART …]``.

Parts: layouts, steps, saves, starts, resumes. Each prints a table; whatever is compared
runs in turns within the same minutes, so that other work on the machine hits both.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from hpcplat.cli.main import main as hpcplat
from launchers.warm import WarmProcess
from tests.benchmarks.training import layouts, resumes, saves, starts, steps
from tests.launchers.megatron.conftest import PR_SET_CHILD_SUBREAPER, Trainer

PARTS: dict[str, Callable[[Trainer, Path], None]] = {
    "layouts": layouts.run,
    "steps": steps.run,
    "saves": saves.run,
    "starts": starts.run,
    "resumes": resumes.run,
}


def main(wanted: list[str]) -> None:
    """Run the parts that were named, or all."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with tempfile.TemporaryDirectory(prefix="hpcplat-bench-") as name:
        folder = Path(name)
        dataset = make_dataset(folder)
        environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
        warm = WarmProcess(["launchers.megatron.preload"], environment)
        try:
            train = Trainer(warm, dataset, folder / "data", patience=3000.0)
            for part in wanted or PARTS:
                PARTS[part](train, folder / part)
        finally:
            warm.close()


def make_dataset(folder: Path) -> str:
    """Ingest some text (Python's own source); return its name and version."""
    source = folder / "text"
    source.mkdir()
    for file in sorted(Path(os.__file__).parent.glob("*.py")):
        (source / f"{file.stem}.txt").write_bytes(file.read_bytes())
    words = ["data", "ingest", "--text", str(source), "--name", "tiny"]
    words += ["--root", str(folder / "data"), "--split", "validation=0.2"]
    if hpcplat(words) != 0:
        sys.exit("the dataset could not be made")
    version = next((folder / "data" / "tiny" / "versions").iterdir())
    return f"tiny@{version.name[:12]}"


if __name__ == "__main__":
    main(sys.argv[1:])
