"""What the command line costs beside the raw commands: seconds of nine runs.

Run on a machine with a Slurm to spare: ``python -m tests.benchmarks.cli`` brings one up
itself, and takes it down again.
"""

from __future__ import annotations

import os
import resource
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
Times = tuple[float, float, float]  # wall: median and best; CPU: median; in seconds
Row = tuple[str, Times, str]
JOBS = 1000


def main() -> None:
    """Bring a cluster up, measure, print a table."""
    folder = Path(tempfile.mkdtemp(prefix="hpcplat-bench-"))
    folder.chmod(0o755)  # the users of the daemons must be able to enter it
    cluster = up(ClusterSpec(name=f"bench-{os.getpid()}", folder=folder / "c"))
    env = {**os.environ, **cluster.environment(), "HPCPLAT_DATA": str(folder / "d")}
    env = {k: v for k, v in env.items() if not k.startswith("HPCPLAT_URL")}
    try:
        print(table(measured(env, folder)))
    finally:
        subprocess.run([sys.executable, "-c", STOP], env=env, check=False)
        cluster.down()
        shutil.rmtree(folder, ignore_errors=True)


def measured(env: Mapping[str, str], folder: Path) -> Iterator[Row]:
    """Yield what was measured: what, the median in seconds, the limit."""
    sbatch = ["--wrap", "true", "-o", "/dev/null", "-H"]
    raw_sbatch = times_of(["sbatch", *sbatch], env)
    yield "sbatch", raw_sbatch, ""
    yield "squeue", times_of(["squeue"], env), ""
    yield "python -c pass", times_of([sys.executable, "-c", "pass"], env), ""
    yield "hpcplat --help", times_of([*HPCPLAT, "--help"], env), "0.30"
    spooled = times_of([*HPCPLAT, "sbatch", *sbatch], env)
    yield "hpcplat sbatch, no service", spooled, f"{raw_sbatch[0] + 0.5:.2f}"
    first = times_of([*HPCPLAT, "jobs"], env, times=1)
    yield "hpcplat jobs, the first call", first, ""
    fill(Path(env["HPCPLAT_DATA"]))
    listing = times_of([*HPCPLAT, "jobs", "--limit", str(JOBS)], env)
    yield f"hpcplat jobs, {JOBS} jobs", listing, "0.60"
    alone = {**env, "HPCPLAT_RESIDENT": "off"}
    cold = times_of([*HPCPLAT, "jobs", "--limit", str(JOBS)], alone, times=3)
    yield f"hpcplat jobs, {JOBS} jobs, without the resident", cold, ""
    with service(env, folder) as url:
        served = times_of([*HPCPLAT, "sbatch", *sbatch], {**env, "HPCPLAT_URL": url})
        limit = f"{raw_sbatch[0] + 0.15:.2f}"
        yield "hpcplat sbatch, with a service", served, limit


STOP = """
from hpcplat.cli import resident
from hpcplat.settings import read_settings
resident.stop(read_settings())
"""
HPCPLAT = [str(Path(sys.executable).with_name("hpcplat"))]


def times_of(argv: Sequence[str], env: Mapping[str, str], times: int = TIMES) -> Times:
    """Return the times of several runs; the output goes nowhere.

    The CPU time is the command's own: it tells, on a machine that is busy with other
    things too, what an idle one would take at least.
    """
    walls, processors = [], []
    for _ in range(times):
        start, before = time.perf_counter(), _processor_time()
        subprocess.run(argv, env=env, check=True, stdout=subprocess.DEVNULL)
        walls.append(time.perf_counter() - start)
        processors.append(_processor_time() - before)
    return statistics.median(walls), min(walls), statistics.median(processors)


def _processor_time() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


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


def table(rows: Iterator[Row]) -> str:
    """Return the rows as Markdown."""
    lines = ["| what | median s | best s | CPU s | limit s |", "|---|---|---|---|---|"]
    lines += [
        f"| {what} | {middle:.3f} | {best:.3f} | {cpu:.3f} | {limit} |"
        for what, (middle, best, cpu), limit in rows
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
