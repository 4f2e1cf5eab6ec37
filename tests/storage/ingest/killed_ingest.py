"""An ingest to be killed: ``killed_ingest.py ROOT PROCESSES SOURCE…``, a task each."""

from __future__ import annotations

import sys
from pathlib import Path

from storage.ingest.options import IngestOptions, Splitting, TextOptions
from storage.ingest.run import Plan, Target, run_ingest
from storage.ingest.sources import stamped
from storage.ingest.tokens import TextRecipe

OPTIONS = IngestOptions(
    deduplicate=True, splitting=Splitting(fractions={"test": 0.1}), shard_mib=1
)


def main() -> None:
    root, processes, *sources = sys.argv[1:]
    tasks = [(stamped(source),) for source in sources]
    plan = Plan(TextRecipe(TextOptions()), OPTIONS, tasks)
    manifest = run_ingest(plan, Target(Path(root), "made"), processes=int(processes))
    print(manifest.digest)  # noqa: T201


if __name__ == "__main__":
    main()
