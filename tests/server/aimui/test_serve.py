"""`hpcplat serve` with Aim beside it: it comes up, lets in who has a token, and goes."""

import os
import signal
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest

from server import auth
from server.database import Database
from server.queries import people

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("aim") is None, reason="Aim is not installed"),
]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def add_token(url: str) -> str:
    """Make a token of an administrator's, straight in the database."""
    token, now = auth.new_token(), datetime.now(UTC)
    database = Database(url)
    with database.write() as session:
        user = people.user_id(session, "root", now, is_admin=True)
        workspace = people.ensure_workspace(session, "team", now)
        assert workspace
        row = people.new_token(
            "00aa00aa00aa00aa",
            user,
            auth.digest(token),
            "test",
            now,
            now + timedelta(days=1),
        )
        people.add_token(session, row)
    database.close()
    return token


def wait_for(url: str) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if httpx.get(url).is_success:
                return
        except httpx.TransportError:
            time.sleep(0.2)
    pytest.fail("the service did not come up")


def test_the_service_has_aim_behind_its_login(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    words = ["-m", "hpcplat.cli.main", "serve", "--port", str(port)]
    with subprocess.Popen(
        [sys.executable, *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "HPCPLAT_DATA": str(tmp_path)},
    ) as process:
        wait_for(f"{url}/api/v1/health")
        token = add_token(f"sqlite:///{tmp_path}/hpcplat.db")
        with httpx.Client(base_url=url) as browser:
            assert browser.get("/aim/").status_code == 401
            answer = browser.post("/aim/login", data={"token": token})
            assert answer.headers["location"] == "/aim/"
            # A workspace in which nothing was tracked yet.
            assert "tracked yet" in browser.get("/aim/", follow_redirects=True).text
        headers = {"Authorization": f"Bearer {token}"}
        made = httpx.post(f"{url}/api/v1/ui/codes", headers=headers)
        assert made.status_code == 201
        login = httpx.get(url + made.json()["path"])
        assert login.status_code == 303
        assert "hpcplat_ui" in login.cookies
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    left = subprocess.run(
        ["pgrep", "-f", f"server.collector --aim {tmp_path}"],
        check=False,
        capture_output=True,
    )
    assert left.stdout == b""
