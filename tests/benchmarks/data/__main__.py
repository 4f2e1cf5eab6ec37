"""``python -m tests.benchmarks.data [TABLE …]``: all tables, or those named."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.benchmarks.data import peers, reading, starting, writing

TABLES: dict[str, Callable[[Path], str]] = {
    "reading": reading.report,
    "starting": starting.report,
    "writing": writing.report,
    "peers": peers.report,
}


def main(names: list[str]) -> None:
    for name in names or TABLES:
        with tempfile.TemporaryDirectory(prefix="hpcplat-bench-") as folder:
            print(TABLES[name](Path(folder)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
