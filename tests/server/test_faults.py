"""Exactly-once submission under fire: a real Slurm, real kills, no duplicate, no loss.

Each case is a job whose name says what goes wrong when it is first submitted: sbatch
times out, is killed, loses its reply; the service is killed at every step; slurmctld is
restarted meanwhile; two services share one database. Clients repeat their requests with
the same idempotency key until they are answered. In the end each job is in Slurm once.
"""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import pytest

from hpcplat.cluster import Cluster
from hpcplat.cluster.census import members
from hpcplat.cluster.daemons import slurmctld, start
from server.ids import find_key
from tests.server.faults.service import CRASHES

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
]

HERE = Path(__file__).parent / "faults"
SEED = 20260301
FAULTS = {
    "ok": 20,
    "refused": 8,
    "unreached": 12,
    "timeout_before": 10,
    "timeout_after": 12,
    "noise_on_stderr": 8,
    "noise_on_stdout": 12,
    "reply_lost": 14,
    "reply_cut": 14,
    "cut_off_before": 12,
    "cut_off_after": 14,
    "killed_before": 12,
    "killed_after": 14,
    "wrong_number": 8,
    "service_killed_before": 8,
    "service_killed_after": 8,
    "service_killed_orphan": 8,
    "late_twin": 6,
}
COMMANDS = ("squeue", "sacct", "scontrol", "sinfo", "scancel", "sacctmgr", "sshare")
LATEST = 240.0  # seconds until all must be settled


class UnixConnection(HTTPConnection):
    """HTTP over a Unix socket, which is closed also when nobody listens."""

    def __init__(self, path: Path) -> None:
        super().__init__("service", timeout=20)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


@dataclass
class Theatre:
    """A cluster, a faulty sbatch, and services that are started again when they die."""

    cluster: Cluster
    folder: Path
    database: str
    crashes: tuple[str, ...] = ()  # a service dies at each, one after another
    deaths: Counter[int] = field(default_factory=Counter)
    closing: threading.Event = field(default_factory=threading.Event)

    def prepare(self) -> None:
        programs = self.folder / "programs"
        tried = self.folder / "tried"
        for folder in (programs, tried, self.folder / "runs"):
            folder.mkdir()
        for name in COMMANDS:
            (programs / name).symlink_to(_which(name))
        text = (HERE / "sbatch.sh").read_text()
        text = text.replace("REAL", _which("sbatch")).replace("TRIED", str(tried))
        (programs / "sbatch").write_text(text)
        (programs / "sbatch").chmod(0o755)

    def socket(self, number: int) -> Path:
        return self.folder / f"s{number}"

    def _mark(self, crash: str) -> Path:
        return self.folder / f"crashed {crash}"

    def has_crashed(self, crash: str) -> bool:
        return self._mark(crash).exists()

    def await_crash(self, crash: str) -> None:
        deadline = time.monotonic() + LATEST
        while not self.has_crashed(crash):
            assert time.monotonic() < deadline, f"it did not die {crash}"
            time.sleep(0.1)

    def keep_running(self, number: int) -> None:
        """Start service ``number`` again whenever it has died."""
        while not self.closing.is_set():
            process = self._start(number)
            while process.poll() is None and not self.closing.is_set():
                time.sleep(0.02)
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait(60)
            else:
                self.deaths[number] += 1

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        crash = next((name for name in self.crashes if not self.has_crashed(name)), "")
        settings = {
            "conf": str(self.cluster.folder.slurm_conf),
            "programs": str(self.folder / "programs"),
            "database": self.database,
            "runs": str(self.folder / "runs"),
            "socket": str(self.socket(number)),
            "crash": crash,
            "crashed": str(self._mark(crash)),
        }
        with (self.folder / f"log{number}").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, HERE / "service.py", json.dumps(settings)],
                stdout=log,
                stderr=log,
            )

    @contextlib.contextmanager
    def running(self, services: int) -> Iterator[None]:
        threads = [
            threading.Thread(target=self.keep_running, args=(number,))
            for number in range(services)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.closing.set()
            for thread in threads:
                thread.join()

    def request(
        self,
        number: int,
        method: str,
        path: str,
        body: object = None,
        headers: dict[str, str] | None = None,
    ) -> Any:  # noqa: ANN401
        """Ask a service until it answers, as a good client does."""
        deadline = time.monotonic() + LATEST
        last = "no connection"
        while time.monotonic() < deadline:
            with contextlib.closing(UnixConnection(self.socket(number))) as connection:
                try:
                    text = json.dumps(body) if body is not None else None
                    url = f"/api/v1{path}"
                    connection.request(method, url, text, headers or {})
                    answer = connection.getresponse()
                    last = answer.read().decode()
                except (OSError, HTTPException) as error:
                    last = repr(error)
                else:
                    if answer.status < 500:
                        return json.loads(last)
            time.sleep(0.1)
        log = (self.folder / f"log{number}").read_text()[-3000:]
        raise TimeoutError(f"{path}: {last}; deaths: {self.deaths}; log: {log}")

    def submit(self, number: int, name: str) -> str:
        spec = {
            "name": name,
            "resources": {"time": "1m", "memory": "10M"},
            "command": ["true"],
            "sbatch": {"begin": "now+7days"},
        }
        answer = self.request(
            number,
            "POST",
            "/jobs",
            {"spec": spec},
            {"Idempotency-Key": name},
        )
        return str(answer["id"])

    def jobs(self, number: int) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        cursor = ""
        while True:
            page = self.request(number, "GET", f"/jobs?limit=1000{cursor}")
            found.extend(page["jobs"])
            if page["next_cursor"] is None:
                return found
            cursor = f"&cursor={page['next_cursor']}"

    def history(self, name: str, job_id: str) -> str:
        """Tell what happened to a job, for the message of a failed test."""
        events = self.request(0, "GET", f"/jobs/{job_id}/events")["events"]
        told = [f"{e['at']} {e['kind']} {e['state']} {e['reason']}" for e in events]
        return "\n".join([name, *told])

    def in_slurm(self) -> Counter[str]:
        """Count the living jobs of each key, as Slurm itself tells."""
        shown = self.cluster.run("squeue", "-h", "-o", "%k %T")
        assert shown.ok, shown.stderr
        keys = (find_key(line) for line in shown.stdout.splitlines())
        return Counter(key for key in keys if key)

    def slurm_ids(self) -> set[str]:
        """Return the Slurm ids of all jobs of ours that live."""
        shown = self.cluster.run("squeue", "-h", "-o", "%A %Z")
        lines = (line.split(maxsplit=1) for line in shown.stdout.splitlines())
        return {job_id for job_id, folder in lines if str(self.folder) in folder}

    def restart_slurmctld(self) -> None:
        [old] = [
            m for m in members(self.cluster.folder.path) if m.daemon == "slurmctld"
        ]
        old.process.terminate()
        old.process.wait(30)
        time.sleep(1)
        layout = self.cluster.layout
        start(slurmctld(layout), layout, self.cluster.place)

    def await_settled(self, ids: set[str], services: int) -> list[dict[str, Any]]:
        deadline = time.monotonic() + LATEST
        while True:
            found = [job for job in self.jobs(services - 1) if job["id"] in ids]
            open_jobs = [
                job for job in found if job["state"] in {"QUEUED", "SUBMITTING"}
            ]
            if len(found) == len(ids) and not open_jobs:
                return found
            assert time.monotonic() < deadline, open_jobs
            time.sleep(0.5)


def _which(name: str) -> str:
    found = shutil.which(name)
    assert found
    return found


@pytest.fixture
def theatre(cluster: Cluster, tmp_path: Path, database_url: str) -> Iterator[Theatre]:
    """Play on the session's cluster, and leave it clean."""
    made = Theatre(cluster, tmp_path, database_url)
    made.prepare()
    yield made
    mine = [f"{job_id}" for job_id in made.slurm_ids()]
    if mine:
        assert cluster.run("scancel", *mine).ok


@pytest.fixture
def own_theatre(
    fresh_cluster: Callable[..., Cluster], tmp_path: Path, database_url: str
) -> Theatre:
    """Play on a cluster whose slurmctld may be stopped."""
    made = Theatre(fresh_cluster(spares=0), tmp_path, database_url)
    made.prepare()
    return made


def cases(part: float) -> list[str]:
    names = [
        f"{fault}.{number}"
        for fault, count in FAULTS.items()
        for number in range(round(count * part))
    ]
    random.Random(SEED).shuffle(names)
    return names


def test_there_are_enough_cases() -> None:
    assert len(cases(1)) >= 200
    assert {name.split(".")[0] for name in cases(0.25)} == set(FAULTS)


def test_no_fault_duplicates_or_loses_a_job(own_theatre: Theatre) -> None:
    theatre = own_theatre
    # All of it on SQLite; on PostgreSQL a quarter, with every fault in it.
    names = cases(1 if "sqlite" in theatre.database else 0.25)
    with theatre.running(services=2):
        with ThreadPoolExecutor(8) as clients:
            asked = clients.map(
                lambda entry: theatre.submit(entry[0] % 2, entry[1]), enumerate(names)
            )
            stage = threading.Thread(target=_restart_slurmctld_twice, args=(theatre,))
            stage.start()
            ids = dict(zip(names, asked, strict=True))
            stage.join()
        found = theatre.await_settled(set(ids.values()), services=2)
        _await_twins_gone(theatre)
        _check(theatre, ids, found)
    assert theatre.deaths.total() >= 2


def test_a_service_killed_at_any_step_neither_loses_nor_doubles(
    theatre: Theatre,
) -> None:
    """It dies at each step once, with jobs under way that go well, and that do not."""
    theatre.crashes = tuple(CRASHES)
    ids: dict[str, str] = {}
    with theatre.running(services=1), ThreadPoolExecutor(4) as clients:
        for wave, crash in enumerate(CRASHES):
            faults = ("ok", "cut_off_before", "ok", "cut_off_before")
            names = [f"{fault}.{wave}{n}" for n, fault in enumerate(faults)]
            asked = clients.map(lambda name: theatre.submit(0, name), names)
            ids |= dict(zip(names, asked, strict=True))
            theatre.await_crash(crash)
        found = theatre.await_settled(set(ids.values()), services=1)
        _check(theatre, ids, found)
    assert theatre.deaths[0] == len(CRASHES)


def _restart_slurmctld_twice(theatre: Theatre) -> None:
    for _ in range(2):
        time.sleep(8)
        theatre.restart_slurmctld()


def _await_twins_gone(theatre: Theatre) -> None:
    """Wait for sbatches that came late, and for their jobs to be cancelled."""
    deadline = time.monotonic() + 60
    time.sleep(10)
    while max(theatre.in_slurm().values(), default=0) > 1:
        assert time.monotonic() < deadline, theatre.in_slurm().most_common(3)
        time.sleep(0.5)


def _check(theatre: Theatre, ids: dict[str, str], found: list[dict[str, Any]]) -> None:
    assert len(set(ids.values())) == len(ids), "one request made two jobs"
    assert len(theatre.jobs(0)) == len(ids), "a job was written down twice"
    by_name = {job["name"]: job for job in found}
    in_slurm = theatre.in_slurm()
    per_job: Counter[str] = Counter()
    for key, count in in_slurm.items():
        per_job[key.split("-")[1]] += count
    for name, job_id in ids.items():
        job = by_name[name]
        if name.startswith("refused."):
            assert (job["state"], per_job[job_id]) == ("FAILED", 0), job
        else:
            now = (job["state"], per_job[job_id])
            assert now == ("PENDING", 1), theatre.history(name, job_id)
    assert sum(per_job.values()) == sum(not n.startswith("refused.") for n in ids)
