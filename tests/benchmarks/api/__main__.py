"""What the service costs and bears: submission beside raw sbatch, reads under load.

    python -m tests.benchmarks.api [--jobs 10000] [--live 2000]

It brings a cluster and a service of its own up, and takes both down. All ratios are of
one run on one machine; the clients run on the same cores as the service and Slurm.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table
from sqlalchemy import update

from hpcplat.client import Client
from hpcplat.cluster import Cluster, ClusterSpec, up
from hpcplat.errors import UnavailableError
from server.database import Database
from server.ids import new_job_id
from server.queries import jobs, people
from server.queries.jobs import NewJob
from server.states import State
from server.tables import Job
from tests.unix_users import acting_as

HERE = Path(__file__).parent
PERSON = "games"  # an ordinary user that every Debian has
BULK = 1000  # jobs in one request
SPEC: dict[str, Any] = {
    "name": "bench",
    "resources": {"time": "1m", "memory": "10M"},
    "command": ["true"],
    "sbatch": {"begin": "now+7days"},
}
RAW = "#!/bin/sh\n#SBATCH --begin=now+7days\n#SBATCH --time=1 --mem=10M\ntrue\n"


@dataclass(frozen=True)
class Row:
    """One line of the table: what, measured, beside what, wanted."""

    what: str
    value: str
    beside: str
    wanted: str


@dataclass
class Bench:
    """A cluster, a service on it, and a client."""

    cluster: Cluster
    folder: Path
    client: Client

    @property
    def socket(self) -> Path:
        return socket_in(self.folder)

    def submission(self, count: int, raw: float) -> Iterator[Row]:
        """Submit ``count`` jobs in each way; ``raw``: the seconds of sbatch in a loop."""
        bare = self._bare(count)
        yield Row(
            "a bare FastAPI route: one durable row, then sbatch",
            _rate(count, bare),
            f"{raw / bare:.2f} x sbatch",
            "",
        )
        yield self.one_by_one("API, one by one, each in Slurm", count, raw)
        waiting = self._waiting(count)
        yield Row(
            "API, one by one, waiting for Slurm's id",
            _rate(count, waiting),
            f"{raw / waiting:.2f} x sbatch",
            "",
        )
        each = raw / count
        accepted, sent = self._bulk(BULK)
        yield Row(
            f"API, one request of {BULK} jobs: written down",
            _rate(BULK, accepted),
            f"{each * BULK / accepted:.1f} x sbatch",
            "≥ 10",
        )
        yield Row(
            "… until all are in Slurm",
            _rate(BULK, sent),
            f"{each * BULK / sent:.2f} x sbatch",
            "",
        )
        array = self._array(1000)
        yield Row(
            "API, an array of 1000 tasks, in Slurm",
            _rate(1000, array),
            f"{each * 1000 / array:.0f} x sbatch",
            "≥ 10",
        )

    def one_by_one(self, what: str, count: int, raw: float) -> Row:
        """Submit one job after the other until all are in Slurm."""
        self._each_sent(10)  # what is made at first use
        seconds = self._each_sent(count)
        return Row(
            what, _rate(count, seconds), f"{raw / seconds:.2f} x sbatch", "≥ 0.8"
        )

    def _bare(self, count: int) -> float:
        socket = self.folder / "bare.sock"
        words = [HERE / "bare.py", socket, self.folder / "bare.db"]
        environ = {**os.environ, **self.cluster.environment()}
        process = subprocess.Popen([sys.executable, *words], env=environ)
        transport = httpx.HTTPTransport(uds=str(socket))
        try:
            with httpx.Client(base_url="http://s", transport=transport) as http:
                while not socket.exists():
                    time.sleep(0.1)
                self._through_bare(http, 5)  # what is made at first use
                return self._through_bare(http, count)
        finally:
            process.terminate()
            process.wait(60)

    def _through_bare(self, http: httpx.Client, count: int) -> float:
        started = time.perf_counter()
        for _ in range(count):
            http.post("/jobs", json=SPEC).raise_for_status()
        while http.get("/left").json()["left"]:
            time.sleep(0.02)
        return time.perf_counter() - started

    def _each_sent(self, count: int) -> float:
        started = time.perf_counter()
        for _ in range(count):
            self.client.submit(SPEC)
        self.await_sent()
        return time.perf_counter() - started

    def _waiting(self, count: int) -> float:
        started = time.perf_counter()
        for _ in range(count):
            self.client.submit(SPEC, wait=60)
        return time.perf_counter() - started

    def _bulk(self, count: int) -> tuple[float, float]:
        started = time.perf_counter()
        self.client.submit_many([SPEC] * count)
        accepted = time.perf_counter() - started
        self.await_sent()
        return accepted, time.perf_counter() - started

    def _array(self, tasks: int) -> float:
        started = time.perf_counter()
        self.client.submit({**SPEC, "array": f"0-{tasks - 1}"}, wait=60)
        return time.perf_counter() - started

    def await_sent(self) -> None:
        while self.client.jobs(limit=1, state=["QUEUED", "SUBMITTING"]):
            time.sleep(0.02)

    def reading(self, known: int) -> Iterator[Row]:
        ids = [job["id"] for job in self.client.jobs(limit=known)]
        paths = self.folder / "paths"
        paths.write_text("\n".join(f"/api/v1/jobs/{job_id}" for job_id in ids))
        live = len(self.client.jobs(limit=known, state=["PENDING", "RUNNING"]))
        about = f"{len(ids)} known, {live} live"
        # Long enough for what the service does now and then to fall into it.
        for clients, pause, seconds, wanted in (
            (50, 0.5, 30, "p99 ≤ 20 ms"),
            (50, 0.0, 10, ""),
            (500, 0.0, 10, "> 195 req/s, < 0.04 % errors"),
        ):
            seen = self._load(paths, clients, pause, seconds)
            took = ", ".join(
                f"{name} {seen[name] * 1000:.1f} ms"
                for name in ("p50", "p99", "longest")
            )
            pace = "flat out" if not pause else f"one request each {pause:g} s"
            yield Row(
                f"GET /jobs/ID, {clients} clients, {pace}",
                f"{took}, {seen['answers'] / seconds:.0f} req/s",
                f"{seen['errors'] / max(seen['answers'], 1):.2%} errors; {about}",
                wanted,
            )

    def _load(self, paths: Path, clients: int, pause: float, seconds: int) -> Any:  # noqa: ANN401
        words = ["--socket", str(self.socket), "--paths", str(paths)]
        words += ["--clients", str(clients), "--pause", str(pause)]
        words += ["--seconds", str(seconds)]
        done = subprocess.run(
            [sys.executable, HERE / "load.py", *words],
            check=True,
            capture_output=True,
        )
        return json.loads(done.stdout)

    def seeing(self, times: int) -> Iterator[Row]:
        waits = [self._until_seen() for _ in range(times)]
        yield Row(
            f"a state in Slurm → in the API, {times} changes",
            f"median {statistics.median(waits):.2f} s, longest {max(waits):.2f} s",
            "",
            "≤ 5 s",
        )

    def _until_seen(self) -> float:
        job = self.client.submit(SPEC, wait=60)
        number = str(job["slurm_job_id"])
        self.cluster.run("scontrol", "update", f"jobid={number}", "StartTime=now")
        while True:
            shown = self.cluster.run("squeue", "-h", "-j", number, "-o", "%T")
            if shown.stdout.strip() != "PENDING":
                break
            time.sleep(0.05)
        started = time.perf_counter()
        while self.client.job(job["id"])["state"] == "PENDING":
            time.sleep(0.05)
        return time.perf_counter() - started


def _rate(count: int, seconds: float) -> str:
    return f"{count / seconds:.0f} jobs/s"


def fill(database: str, count: int) -> None:
    """Write jobs that have ended long ago straight into the database."""
    opened = Database(database)
    opened.migrate()
    now = datetime.now(UTC)
    with opened.write() as session:
        user = people.user_id(session, "root", now)
        workspace = people.ensure_workspace(session, "default", now)
        for start in range(0, count, 500):
            new = [
                NewJob(
                    id=new_job_id(1_700_000_000_000 + start + n),
                    cluster="bench",
                    workspace_id=workspace,
                    user_id=user,
                    name=f"old{n}",
                    kind="command",
                    spec={"name": "old", "command": ["true"]},
                    spec_digest="",
                    folder="/nowhere",
                    partition="gpu",
                    nodes=1,
                    gpus=0,
                    tasks=1,
                    offsets=(),
                )
                for n in range(min(500, count - start))
            ]
            jobs.create(session, new, now)
        session.execute(update(Job).values(state=State.COMPLETED, ended_at=now))
    opened.close()


def raw_sbatch(cluster: Cluster, count: int) -> float:
    """Return the seconds that sbatch in a loop takes."""
    started = time.perf_counter()
    for _ in range(count):
        subprocess.run(
            ["sbatch", "--parsable"],
            input=RAW.encode(),
            env={**os.environ, **cluster.environment()},
            stdout=subprocess.DEVNULL,
            check=True,
        )
    return time.perf_counter() - started


def through_slurmrestd(cluster: Cluster, folder: Path, count: int, raw: float) -> Row:
    """Have a service submit by slurmrestd, which starts no sbatch."""
    port = cluster.layout.ports.slurmrestd
    policy = {
        "submission": "rest",
        "slurmrestd": f"http://127.0.0.1:{port}",
        "jwt_key": str(cluster.folder.jwt_key),
    }
    folder.mkdir()
    folder.chmod(0o755)
    (folder / "policy.json").write_text(json.dumps(policy))
    environ = {"HPCPLAT_POLICY": str(folder / "policy.json")}
    cluster.add_account("bench")
    cluster.add_user(PERSON, "bench")
    with (
        service(cluster, folder, "--everybody", **environ),
        acting_as(PERSON),
        client_of(folder) as client,
    ):
        bench = Bench(cluster, folder, client)
        return bench.one_by_one(
            "API by slurmrestd, one by one, each in Slurm", count, raw
        )


def socket_in(folder: Path) -> Path:
    """Return where the service in a folder listens."""
    return folder / "service.sock"


def client_of(folder: Path) -> Client:
    """Return a client of the service in a folder."""
    transport = httpx.HTTPTransport(uds=str(socket_in(folder)))
    return Client(httpx.Client(base_url="http://s", transport=transport, timeout=300))


@contextmanager
def service(
    cluster: Cluster, folder: Path, *words: str, **variables: str
) -> Iterator[Client]:
    environ = {
        **{k: v for k, v in os.environ.items() if not k.startswith("HPCPLAT")},
        **cluster.environment(),
        "HPCPLAT_DATA": str(folder / "data"),
        **variables,
    }
    start = [sys.executable, "-m", "hpcplat.cli.main", "serve"]
    process = subprocess.Popen(
        [*start, "--socket", str(socket_in(folder)), *words], env=environ
    )
    try:
        with client_of(folder) as client:
            while True:
                try:
                    client.health()
                except UnavailableError:
                    time.sleep(0.1)
                else:
                    break
            yield client
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def measured(
    cluster: Cluster, folder: Path, asked: argparse.Namespace
) -> Iterator[Row]:
    """Yield the rows, one after the other."""
    count = asked.submissions
    (folder / "data").mkdir()
    fill(f"sqlite:///{folder}/data/hpcplat.db", asked.jobs - asked.live)
    raw_sbatch(cluster, 10)  # what is made at first use
    raw = raw_sbatch(cluster, count)
    yield Row(f"sbatch in a loop, {count} jobs", _rate(count, raw), "", "")
    yield through_slurmrestd(cluster, folder / "rest", count, raw)
    with service(cluster, folder) as client:
        bench = Bench(cluster, folder, client)
        yield from bench.submission(count, raw)
        live = len(client.jobs(limit=20_000, state=["PENDING"]))
        client.submit_many([SPEC] * max(asked.live - live, 1))
        bench.await_sent()
        yield from bench.seeing(5)
        yield from bench.reading(asked.jobs)


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description="What the service costs and bears.")
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--live", type=int, default=2_000)
    parser.add_argument("--submissions", type=int, default=300)
    asked = parser.parse_args()
    table = Table("what", "measured", "beside", "wanted")
    with tempfile.TemporaryDirectory(prefix="hpcplat-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        settings = {"MaxJobCount": str(asked.live * 3 + 10_000)}
        cluster = up(ClusterSpec(name="bench", folder=folder / "c", settings=settings))
        try:
            for row in measured(cluster, folder, asked):
                table.add_row(row.what, row.value, row.beside, row.wanted)
        finally:
            cluster.down()
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
