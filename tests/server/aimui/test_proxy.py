"""The proxy, before a small server that tells what it was asked."""

import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from hpcplat.errors import NotFoundError
from server import auth
from server.aimui.install import add_routes
from server.aimui.proxy import COOKIE, AimGate
from server.aimui.sessions import Sessions
from server.auth import Principal

TOKEN = "hpcplat_token-of-alice"
ALICE = Principal(1, "alice", is_admin=False)


class Echo(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        size = int(self.headers.get("Content-Length", 0))
        said = {
            "method": self.command,
            "path": self.path,
            "headers": dict(self.headers.items()),
            "body": self.rfile.read(size).decode(),
        }
        page = self.path.endswith("/page")
        body = b"<script>hi()</script>" if page else json.dumps(said).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html" if page else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Set-Cookie", f"{COOKIE}=stolen")
        self.send_header("Access-Control-Allow-Origin", "*")
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_PUT = do_DELETE = do_GET

    def log_message(self, *_: object) -> None:
        pass

    def address_string(self) -> str:
        return "unix"


class Host:
    """In the place of AimHost: a UI that runs already."""

    base = "/aim"

    def __init__(self, socket: Path) -> None:
        self._socket: Path | None = socket

    def base_of(self, workspace: str) -> str:
        return f"/aim/{workspace}"

    def socket(self, workspace: str) -> Path | None:
        if workspace == "empty":
            raise NotFoundError("No run was tracked yet.")
        return None if workspace == "slow" else self._socket

    def close(self) -> None:
        pass


@pytest.fixture
def sees() -> dict[str, bool]:
    return {"team": True, "other": False, "empty": True, "slow": True}


@pytest.fixture
def browser(
    tmp_path_factory: pytest.TempPathFactory, sees: Mapping[str, bool]
) -> Iterator[TestClient]:
    path = tmp_path_factory.mktemp("s") / "ui"
    with ThreadingUnixStreamServer(str(path), Echo) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        app = FastAPI()
        host: Any = Host(path)
        gate = AimGate(
            host,
            Sessions(),
            holder=lambda digest: ALICE if digest == auth.digest(TOKEN) else None,
            sees=lambda _: sees,
        )
        add_routes(app, gate)
        app.state.gate = gate
        with TestClient(app, base_url="http://here", follow_redirects=False) as client:
            yield client
        server.shutdown()


@pytest.fixture
def alice(browser: TestClient) -> TestClient:
    answer = browser.post("/aim/login", data={"token": TOKEN})
    assert answer.status_code == 303
    return browser


def test_nobody_sees_anything_without_a_session(browser: TestClient) -> None:
    for path in ("/aim/", "/aim/team/", "/aim/team/api/runs/search/run/"):
        answer = browser.get(path)
        assert answer.status_code == 401
        assert "Token" in answer.text
    browser.cookies.set(COOKIE, "guessed", path="/aim")
    assert browser.get("/aim/team/").status_code == 401


def test_a_token_becomes_a_cookie_for_this_path_only(browser: TestClient) -> None:
    form = {"token": TOKEN, "next": "/aim/team/runs"}
    answer = browser.post("/aim/login", data=form)
    assert answer.headers["location"] == "/aim/team/runs"
    cookie = answer.headers["set-cookie"]
    for word in ("HttpOnly", "Path=/aim", "SameSite=lax"):
        assert word in cookie
    assert TOKEN not in cookie


@pytest.mark.parametrize(
    ("headers", "is_secure"),
    [
        ({}, False),
        ({"X-Forwarded-Proto": "http"}, False),
        ({"X-Forwarded-Proto": "https"}, True),
        ({"X-Forwarded-Proto": "HTTPS, http"}, True),
    ],
)
def test_behind_a_proxy_that_speaks_https_the_cookie_does_too(
    browser: TestClient, headers: dict[str, str], is_secure: bool
) -> None:
    answer = browser.post("/aim/login", data={"token": TOKEN}, headers=headers)
    assert ("Secure" in answer.headers["set-cookie"]) is is_secure


def test_a_site_that_has_https_alone_says_so_once(
    browser: TestClient,
) -> None:
    app = browser.app
    assert isinstance(app, FastAPI)
    app.state.aim = replace(app.state.aim, secure=True)
    answer = browser.post("/aim/login", data={"token": TOKEN})
    assert "Secure" in answer.headers["set-cookie"]


def test_a_wrong_token_is_refused(browser: TestClient) -> None:
    answer = browser.post("/aim/login", data={"token": "hpcplat_wrong"})
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers


def test_a_code_logs_in_once(browser: TestClient) -> None:
    app: Any = browser.app
    code = app.state.gate.sessions.new_code(ALICE)
    answer = browser.get("/aim/login", params={"code": code, "next": "//evil.example"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/aim/")
    browser.cookies.clear()
    assert browser.get("/aim/login", params={"code": code}).status_code == 401


def test_a_login_from_another_site_is_refused(browser: TestClient) -> None:
    headers = {"Origin": "http://evil.example"}
    answer = browser.post("/aim/login", data={"token": TOKEN}, headers=headers)
    assert answer.status_code == 403


def test_calls_reach_aim_without_the_session(alice: TestClient) -> None:
    path = "/aim/team/api/runs/search/run/?q=run.x%20%3E%201"
    answer = alice.get(
        path, headers={"Authorization": "Bearer x", "X-Forwarded-For": "1"}
    )
    said = answer.json()
    assert said["path"] == path
    names = {name.lower() for name in said["headers"]}
    assert not names & {"cookie", "authorization", "x-forwarded-for"}
    assert "stolen" not in answer.headers.get("set-cookie", "")
    assert "access-control-allow-origin" not in answer.headers
    assert "default-src 'self'" in answer.headers["content-security-policy"]


def test_bodies_are_passed_on(alice: TestClient) -> None:
    answer = alice.post("/aim/team/api/dashboards/", content=b"x" * 100_000)
    assert len(answer.json()["body"]) == 100_000


def test_a_page_s_own_script_may_run(alice: TestClient) -> None:
    answer = alice.get("/aim/team/page")
    assert "'sha256-" in answer.headers["content-security-policy"]
    assert answer.text == "<script>hi()</script>"


def test_a_viewer_looks_only(alice: TestClient) -> None:
    assert alice.get("/aim/other/api/tags/").status_code == 200
    assert alice.post("/aim/other/api/tags/").status_code == 403
    assert alice.post("/aim/team/api/tags/").status_code == 200
    assert alice.delete("/aim/team/api/runs/abc/").status_code == 403


def test_writes_from_other_sites_are_refused(alice: TestClient) -> None:
    for origin in ("http://evil.example", "null"):
        headers = {"Origin": origin}
        answer = alice.post("/aim/team/api/tags/", headers=headers)
        assert answer.status_code == 403
    headers = {"Origin": "http://here"}
    assert alice.post("/aim/team/api/tags/", headers=headers).status_code == 200


def test_another_workspace_is_not_there(alice: TestClient) -> None:
    assert alice.get("/aim/secret/").status_code == 404


def test_workspaces_are_listed(alice: TestClient, sees: dict[str, bool]) -> None:
    page = alice.get("/aim/").text
    assert 'href="/aim/team/"' in page
    for name in list(sees)[1:]:
        del sees[name]
    assert alice.get("/aim/").headers["location"] == "/aim/team/"
    del sees["team"]
    assert "http-equiv" in alice.get("/aim/").text


def test_what_is_not_there_yet_is_said(alice: TestClient) -> None:
    assert "No run was tracked yet" in alice.get("/aim/empty/").text
    waiting = alice.get("/aim/slow/")
    assert waiting.status_code == 503
    assert "http-equiv" in waiting.text


def test_logging_out(alice: TestClient) -> None:
    assert alice.post("/aim/logout").status_code == 303
    assert alice.get("/aim/team/").status_code == 401


@pytest.mark.parametrize(
    "path", ["/aim/team/../secret/x", "/aim/team/%2e%2e/secret", "/aim/team//x"]
)
def test_odd_paths_stay_with_their_workspace(alice: TestClient, path: str) -> None:
    url = alice.base_url.copy_with(raw_path=path.encode())
    answer = alice.send(alice.build_request("GET", url))
    assert answer.status_code in (200, 404)
    if answer.status_code == 200:
        assert answer.json()["path"].startswith("/aim/team")
