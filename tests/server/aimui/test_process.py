"""Starting Aim's process: one that hangs is ended and started once more."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcplat.errors import UnavailableError
from server.aimui import process
from server.aimui.process import AimUi

ANSWERS = """
import http.server, socketserver, sys
class One(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"[]")
    def address_string(self):
        return "unix"
with socketserver.ThreadingUnixStreamServer(sys.argv[1], One) as server:
    server.serve_forever()
"""
HANGS = "import time; time.sleep(600)"
ENDS = "import sys; sys.exit('no such repository')"


@pytest.fixture
def ui(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AimUi]:
    monkeypatch.setattr(process, "STARTS_WITHIN", 5.0)
    made = AimUi(tmp_path, "/aim")
    yield made
    made.close()


def programs(
    ui: AimUi, monkeypatch: pytest.MonkeyPatch, *codes: str
) -> list[subprocess.Popen[bytes]]:
    """Have these programs started, one after the other, in the place of Aim."""
    real, started = process.start, list[subprocess.Popen[bytes]]()

    def start(_argv: object, log: Path, folder: Path) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-c", codes[len(started)], str(ui.socket)]
        started.append(real(words, log, folder))
        return started[-1]

    monkeypatch.setattr(process, "start", start)
    return started


@pytest.mark.slow
def test_one_that_hangs_is_started_once_more(
    ui: AimUi, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = programs(ui, monkeypatch, HANGS, ANSWERS)
    ui.ensure()
    assert ui.is_current
    assert started[0].poll() is not None


@pytest.mark.slow
def test_one_that_hangs_twice_is_given_up_and_ended(
    ui: AimUi, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = programs(ui, monkeypatch, HANGS, HANGS)
    with pytest.raises(UnavailableError, match="did not start"):
        ui.ensure()
    assert [each.poll() is not None for each in started] == [True, True]


def test_one_that_ends_by_itself_is_not_started_again(
    ui: AimUi, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = programs(ui, monkeypatch, ENDS)
    with pytest.raises(UnavailableError, match="no such repository"):
        ui.ensure()
    assert len(started) == 1
