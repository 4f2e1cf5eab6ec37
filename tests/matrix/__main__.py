"""Run the tests marked `matrix` on each Slurm: `python -m tests.matrix [SUITE …]`.

The machine's own Slurm comes first, then those of other Debians in change-root folders,
which are made when they are not there (root, debootstrap, a minute and 0.7 GB each).
Prints a Markdown table and ends with 1 if a test failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from hpcplat import processes
from hpcplat.cluster import roots
from hpcplat.cluster.place import ChangeRoot, Host

HERE = "this machine"
DEFAULT = (HERE, "trixie", "sid")


@dataclass(frozen=True)
class Outcome:
    """What pytest counted on one Slurm."""

    place: str
    version: str
    passed: int
    skipped: int
    failed: int
    seconds: float

    def row(self) -> str:
        counts = f"{self.passed} | {self.skipped} | {self.failed}"
        return f"| {self.version} | {self.place} | {counts} | {self.seconds:.0f} |"


def main(places: list[str]) -> int:
    outcomes = [run(place) for place in places or DEFAULT]
    print("| Slurm | from | passed | skipped | failed | seconds |")
    print("|---|---|--:|--:|--:|--:|")
    for outcome in outcomes:
        print(outcome.row())
    return int(any(outcome.failed for outcome in outcomes))


def run(place: str) -> Outcome:
    root = None if place == HERE else roots.make(place, roots.default_home())
    version = version_of(root)
    print(f"Slurm {version} of {root or HERE}:", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-m", "matrix"]
        environment = os.environ | ({"HPCPLAT_TEST_ROOT": str(root)} if root else {})
        subprocess.run([*command, f"--junitxml={report}"], env=environment, check=False)
        return counted(place, version, report)


def version_of(root: Path | None) -> str:
    place = ChangeRoot(root, ()) if root else Host()
    argv = place.command(["slurmctld", "-V"])
    return processes.run(argv, timeout=30).stdout.split()[-1]


def counted(place: str, version: str, report: Path) -> Outcome:
    suite = ElementTree.parse(report).getroot()[0]
    total, skipped = int(suite.get("tests", 0)), int(suite.get("skipped", 0))
    failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
    return Outcome(
        place=place if place == HERE else f"Debian {place}",
        version=version,
        passed=total - skipped - failed,
        skipped=skipped,
        failed=failed,
        seconds=float(suite.get("time", 0)),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
