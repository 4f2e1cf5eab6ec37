"""Resident memory while reading: bounded, however large the data."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hpcplat.datasets.codecs import compressors
from storage.layout import Layout
from storage.writing import ArrayWriter

MIB = 2**20

PROGRAM = """
import json, sys
from pathlib import Path
import numpy as np
from hpcplat.datasets.array import Array
from hpcplat.datasets import Cursor, Loader, Reading

class Rows:
    def __init__(self, array): self.array = array
    def __len__(self): return len(self.array) // 2048
    def batch(self, indices, positions): return self.array.windows(indices * 2048, 2048)

def memory():
    lines = Path("/proc/self/status").read_text().splitlines()
    pairs = (line.split() for line in lines)
    return {p[0]: int(p[1]) * 1024 for p in pairs if p[0] in ("RssAnon:", "RssFile:")}

rows = Rows(Array(Path(sys.argv[1]), memory_bytes=int(sys.argv[2]), threads=2))
loader = Loader(rows, Cursor(len(rows), 0), Reading(256, ahead=2))
before, most = None, {"RssAnon:": 0, "RssFile:": 0}
with loader:
    for number in range(len(rows) // 256):
        next(loader)
        now = memory()
        before = before or now
        most = {name: max(most[name], now[name] - before[name]) for name in now}
print(json.dumps(most))
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["none", "blosc"])
def test_a_whole_epoch_stays_within_the_bound(tmp_path: Path, how: str) -> None:
    writer = ArrayWriter(
        tmp_path / "a",
        np.dtype(np.uint16),
        layout=Layout(2**16, 2**23),
        compressors=compressors(how, 2),
    )
    random = np.random.default_rng(0)
    for _ in range(32):
        writer.append(random.integers(0, 20_000, 2**22).astype(np.uint16))
    writer.close()
    bound = 32 * MIB
    out = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "a"), str(bound)],
        capture_output=True,
        check=True,
        text=True,
    )
    most = json.loads(out.stdout)
    batch = 256 * 2048 * 2
    # 256 MiB were read. Pages of files may exceed their bound by one huge page a row.
    assert most["RssFile:"] < bound + 64 * MIB
    # Batches under way, and what the arenas of their threads keep.
    assert most["RssAnon:"] < (bound if how != "none" else 0) + 16 * batch
