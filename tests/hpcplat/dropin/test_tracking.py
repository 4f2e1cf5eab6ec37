"""What the service is asked and told about a call, and what happens when it is away."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from hpcplat.cli import delivery
from hpcplat.dropin.passage import Accepted
from hpcplat.dropin.service import SiteService
from hpcplat.dropin.spool import Spool
from hpcplat.dropin.tracker import Journal
from hpcplat.errors import ForbiddenError
from hpcplat.settings import Settings, read_settings

KEY = "hpc-0123456789abcdef-1-0"


@dataclass
class Site:
    """A service that remembers what it was told, and answers as it is told to."""

    url: str
    status: int = 204
    answer: dict[str, Any] = field(default_factory=dict)
    told: list[tuple[str, dict[str, Any]]] = field(default_factory=list)


@pytest.fixture
def site() -> Iterator[Site]:
    found = Site("")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers["Content-Length"])
            found.told.append((self.path, json.loads(self.rfile.read(size))))
            body = json.dumps(found.answer).encode()
            self.send_response(found.status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    server = HTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield found
    server.shutdown()
    thread.join()
    server.server_close()


def settings(url: str, folder: Path) -> Settings:
    return read_settings({"HPCPLAT_URL": url, "HPCPLAT_DATA": str(folder)})


def record(**values: Any) -> dict[str, Any]:  # noqa: ANN401 - as it is
    return {"key": KEY, "words": ["x"], "created_at": 0.0, "job_id": None, **values}


def journal(site: Site, folder: Path) -> tuple[Journal, Spool]:
    spool = Spool(folder / "sbatch")
    return Journal(record(), spool, SiteService(settings(site.url, folder))), spool


def test_asked_then_told_then_forgotten(site: Site, tmp_path: Path) -> None:
    story, spool = journal(site, tmp_path)
    assert story.announced() == ""
    assert [r["key"] for r in spool.records()] == [KEY]
    story.accepted(Accepted(7, ""))
    story.ended(0)
    assert not spool.is_empty()
    story.report()
    assert [path for path, _ in site.told] == [
        "/api/v1/sbatch/announce",
        "/api/v1/sbatch",
    ]
    assert site.told[1][1]["calls"][0]["job_id"] == 7
    assert spool.is_empty()


def test_a_no_keeps_the_job_from_being_submitted(site: Site, tmp_path: Path) -> None:
    site.status, site.answer = 403, {"detail": "No GPUs left.", "remedy": "Wait."}
    story, spool = journal(site, tmp_path)
    with pytest.raises(ForbiddenError, match=r"No GPUs left\. Wait\."):
        story.announced()
    assert spool.is_empty()


@pytest.mark.parametrize("status", [500, 503, 401, 404])
def test_a_service_in_trouble_never_keeps_a_job_waiting(
    site: Site, tmp_path: Path, status: int
) -> None:
    site.status = status
    story, spool = journal(site, tmp_path)
    assert "submitted, and tracked later" in story.announced()
    story.accepted(Accepted(7, ""))
    story.ended(0)
    story.report()
    assert [r["job_id"] for r in spool.records()] == [7]


def test_a_refused_sbatch_leaves_nothing(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "sbatch")
    story = Journal(record(), spool, None)
    story.announced()
    story.ended(1)
    assert spool.is_empty()


def test_a_killed_sbatch_is_remembered(tmp_path: Path) -> None:
    """Nobody knows whether Slurm has the job: its key will tell."""
    spool = Spool(tmp_path / "sbatch")
    story = Journal(record(), spool, None)
    story.announced()
    story.ended(137)
    assert not spool.is_empty()


class Told:
    """The part of the client that delivery needs."""

    def __init__(self, refusal: str = "") -> None:
        self.refusal = refusal
        self.calls: list[dict[str, Any]] = []

    def adopt(self, calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
        self.calls += calls
        job = None if self.refusal else "id"
        return [{"key": c["key"], "job": job, "refusal": self.refusal} for c in calls]


def test_what_was_kept_is_delivered_later(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    for number in range(250):
        key = f"hpc-{number:016d}-1-0"
        spool.write(record(key=key, job_id=number + 1))
    told = Told()
    delivery.deliver(told, spool)  # type: ignore[arg-type]
    assert len(told.calls) == 250
    assert spool.is_empty()


def test_what_slurm_does_not_know_is_dropped_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spool = Spool(tmp_path)
    spool.write(record(job_id=9))
    delivery.deliver(Told("Slurm knows no job 9."), spool)  # type: ignore[arg-type]
    assert spool.is_empty()
    assert "not tracked: Slurm knows no job 9." in capsys.readouterr().err


def test_a_torn_record_harms_nobody(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    (tmp_path / f"{KEY}.json").write_text('{"key": ')
    told = Told()
    delivery.deliver(told, spool)  # type: ignore[arg-type]
    assert told.calls == []


def test_work_in_the_background_holds_nothing_of_ours(tmp_path: Path) -> None:
    """A shell that reads the output to its end does not wait for the work."""
    code = (
        "import time; from hpcplat.dropin.detached import run_detached\n"
        f"run_detached(lambda: (time.sleep(1), open({str(tmp_path / 'x')!r}, 'w')))\n"
        "print('out')"
    )
    start = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout == b"out\n"
    assert not (tmp_path / "x").exists()
    while not (tmp_path / "x").exists():
        assert time.monotonic() - start < 60
        time.sleep(0.05)
