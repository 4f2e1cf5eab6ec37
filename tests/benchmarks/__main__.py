"""Prints every benchmark's tables, one after the other: `make bench`.

Each is a program of its own; `python -m tests.benchmarks NAME …` runs some of them.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Final

BENCHMARKS: Final = (
    "slurm_queries",
    "cli",
    "api",
    "admission",
    "data",
    "training",
    "recovery.copies",
    "recovery.kills",
    "recovery.effective",
    "tracking",
)


def main(names: list[str]) -> int:
    """Run the named benchmarks (none: all); the exit code says whether all ran."""
    unknown = sorted(set(names) - set(BENCHMARKS))
    if unknown:
        print(f"No benchmark {unknown[0]}. There are: {', '.join(BENCHMARKS)}.")
        return 2
    failed = [name for name in names or BENCHMARKS if not _ran(name)]
    for name in failed:
        print(f"{name} failed.", file=sys.stderr)
    return 1 if failed else 0


def _ran(name: str) -> bool:
    print(f"\n# {name}\n", flush=True)
    module = f"tests.benchmarks.{name}"
    return subprocess.run([sys.executable, "-m", module], check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
