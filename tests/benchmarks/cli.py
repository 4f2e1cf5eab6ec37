"""What the command line costs beside the raw commands: medians, in seconds.

Run on a machine with a Slurm to spare: ``python -m tests.benchmarks.cli`` brings one up
itself, and takes it down again.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from hpcplat.cluster import ClusterSpec, up

TIMES = 9
JOBS = 1000


def main() -> None:
    """Bring a cluster up, measure, print a table."""
    folder = Path(tempfile.mkdtemp(prefix="hpcplat-bench-"))
    folder.chmod(0o755)  # the users of the daemons must be able to enter it
    cluster = up(ClusterSpec(name=f"bench-{os.getpid()}", folder=folder / "c"))
    try:
        env = {**os.environ, **cluster.environment(), "HPCPLAT_DATA": str(folder / "d")}
        env = {k: v for k, v in env.items() if not k.startswith("HPCPLAT_URL")}
        print(table(measured(env, folder)))
    finally:
        cluster.down()
        shutil.rmtree(folder, ignore_errors=True)


def measured(env: Mapping[str, str], folder: Path) -> Iterator[tuple[str, float, str]]:
    """Yield what was measured: what, the median in seconds, the limit."""
    sbatch = ["--wrap", "true", "-o", "/dev/null", "-H"]
    raw_sbatch = median(["sbatch", *sbatch], env)
    yield "sbatch", raw_sbatch, ""
    yield "squeue", median(["squeue"], env), ""
    yield "python -c pass", median([sys.executable, "-c", "pass"], env), ""
    yield "hpcplat --help", median([*HPCPLAT, "--help"], env), "0.30"
    spooled = median([*HPCPLAT, "sbatch", *sbatch], env)
    yield "hpcplat sbatch, no service", spooled, f"{raw_sbatch + 0.5:.2f}"
    first = median([*HPCPLAT, "jobs"], env, times=1)
    yield "hpcplat jobs, the first call", first, ""
    fill(Path(env["HPCPLAT_DATA"]))
    listing = median([*HPCPLAT, "jobs", "--limit", str(JOBS)], env)
    yield f"hpcplat jobs, {JOBS} jobs", listing, "0.60"
    alone = {**env, "HPCPLAT_RESIDENT": "off"}
    cold = median([*HPCPLAT, "jobs", "--limit", str(JOBS)], alone, times=3)
    yield f"hpcplat jobs, {JOBS} jobs, without the resident", cold, ""
    with service(env, folder) as url:
        served = median([*HPCPLAT, "sbatch", *sbatch], {**env, "HPCPLAT_URL": url})
        limit = f"{raw_sbatch + 0.15:.2f}"
        yield "hpcplat sbatch, with a service", served, limit


HPCPLAT = [str(Path(sys.executable).with_name("hpcplat"))]


def median(argv: Sequence[str], env: Mapping[str, str], times: int = TIMES) -> float:
    """Return the median of several runs' wall times; the output goes nowhere."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        subprocess.run(argv, env=env, check=True, stdout=subprocess.DEVNULL)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def fill(data: Path) -> None:
    """Have a database with many ended jobs: copies of one that sbatch submitted."""
    with sqlite3.connect(data / "hpcplat.db") as database:
        columns = [row[1] for row in database.execute("PRAGMA table_info(job)")]
        others = ", ".join(c for c in columns if c not in {"id", "idempotency_key"})
        copied = others.replace("state", "'COMPLETED'", 1)
        database.executemany(
            f"INSERT INTO job (id, {others}) SELECT ?, {copied} FROM job LIMIT 1",
            [(f"0{number:015d}",) for number in range(JOBS)],
        )


@contextmanager
def service(env: Mapping[str, str], folder: Path) -> Iterator[str]:
    """Run `hpcplat serve` on a socket; yield its URL."""
    path = folder / "s.sock"
    process = subprocess.Popen(
        [*HPCPLAT, "serve", "--socket", str(path)], env=env, stdout=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 30
        while not path.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        yield f"unix:{path}"
    finally:
        process.terminate()
        process.wait()


def table(rows: Iterator[tuple[str, float, str]]) -> str:
    """Return the rows as Markdown."""
    lines = ["| what | median s | limit s |", "|---|---|---|"]
    lines += [f"| {what} | {seconds:.3f} | {limit} |" for what, seconds, limit in rows]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
