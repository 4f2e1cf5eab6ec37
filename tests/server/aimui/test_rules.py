import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.aimui import rules
from server.aimui.sessions import CODE_SECONDS, SESSION_SECONDS, Sessions
from server.auth import Principal

READS = [
    ("GET", "/"),
    ("GET", "/runs/abc/metrics"),
    ("GET", "/api/runs/search/run/"),
    ("HEAD", "/static-files/x.js"),
    ("POST", "/api/runs/search/metric/align/"),
    ("POST", "/api/runs/abc/metric/get-batch/"),
    ("POST", "/api/runs/images/get-batch/"),
]
WRITES = [
    ("POST", "/api/dashboards/"),
    ("PUT", "/api/runs/abc/"),
    ("POST", "/api/runs/abc/tags/new/"),
    ("DELETE", "/api/tags/x/"),
    ("POST", "/api/runs/abc/note/"),
    ("DELETE", "/api/runs/abc/note/3/"),
]
NEVER = [
    ("DELETE", "/api/runs/abc/"),
    ("DELETE", "/api/runs/abc"),
    ("POST", "/api/runs/delete-batch/"),
    ("POST", "/api/runs/delete-batch"),
    ("OPTIONS", "/"),
    ("CONNECT", "/"),
]


@pytest.mark.parametrize(("method", "path"), READS)
def test_everybody_may_look(method: str, path: str) -> None:
    assert rules.may_pass(method, path, writes=False)
    assert rules.may_pass(method, path, writes=True)


@pytest.mark.parametrize(("method", "path"), WRITES)
def test_who_may_write_may(method: str, path: str) -> None:
    assert not rules.may_pass(method, path, writes=False)
    assert rules.may_pass(method, path, writes=True)


@pytest.mark.parametrize(("method", "path"), NEVER)
def test_nobody_deletes_runs(method: str, path: str) -> None:
    assert not rules.may_pass(method, path, writes=True)


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ("/aim/team/runs/a/metrics?x=1", "/aim/team/runs/a/metrics?x=1"),
        ("/aim", "/aim"),
        ("", "/aim/"),
        ("/other", "/aim/"),
        ("/aimless", "/aim/"),
        ("https://evil.example/aim/", "/aim/"),
        ("//evil.example/aim/", "/aim/"),
        ("/aim//evil.example", "/aim/"),
        ("/aim/\\evil.example", "/aim/"),
        ("/aim/../api", "/aim/"),
        ("/aim/\r\nSet-Cookie: a=b", "/aim/"),
        ("javascript:alert(1)", "/aim/"),
    ],
)
def test_the_login_leads_to_our_own_pages_only(asked: str, given: str) -> None:
    assert rules.safe_next(asked, "/aim") == given


@given(st.text())
def test_no_text_leads_elsewhere(text: str) -> None:
    found = rules.safe_next(text, "/aim")
    assert found.startswith("/aim")
    assert found.isprintable()


def test_aim_is_not_told_who_asks() -> None:
    headers = [
        ("Cookie", "hpcplat_ui=secret"),
        ("Authorization", "Bearer x"),
        ("X-Forwarded-For", "1.2.3.4"),
        ("Connection", "keep-alive"),
        ("Accept", "*/*"),
    ]
    assert rules.to_aim(headers) == [("Accept", "*/*")]


def test_aim_can_set_no_cookie_nor_open_the_page_to_others() -> None:
    headers = [
        ("Set-Cookie", "hpcplat_ui=mine"),
        ("Access-Control-Allow-Origin", "*"),
        ("Content-Security-Policy", "default-src *"),
        ("Content-Type", "text/plain"),
    ]
    found = dict(rules.to_browser(headers, rules.security_headers()))
    assert "Set-Cookie" not in found
    assert "Access-Control-Allow-Origin" not in found
    assert found["Content-Security-Policy"].startswith("default-src 'self'")
    assert found["Content-Type"] == "text/plain"


def test_only_the_page_s_own_scripts_run() -> None:
    page = "<script>one()</script><script src='x.js'></script><script>two\n()</script>"
    assert rules.inline_scripts(page) == ["one()", "two\n()"]
    policy = rules.security_headers(["one()"])["Content-Security-Policy"]
    # printf 'one()' | openssl dgst -sha256 -binary | base64
    assert "'sha256-HR7iaask9daLMRRskMI++QeJtjWDOjyPA6lGzYGzKW4='" in policy
    assert "'unsafe-inline'" not in policy.split("script-src")[1].split(";")[0]
    assert "frame-ancestors 'none'" in policy


@pytest.mark.parametrize(
    ("origin", "foreign"),
    [
        (None, False),
        ("http://here:80", False),
        ("http://evil.example", True),
        ("null", True),
    ],
)
def test_other_sites_pages_are_known(origin: str | None, foreign: bool) -> None:
    assert rules.is_from_elsewhere(origin, "here:80") is foreign


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


ALICE = Principal(1, "alice", is_admin=False)


def test_a_code_logs_in_once() -> None:
    sessions = Sessions(Clock())
    code = sessions.new_code(ALICE)
    cookie = sessions.redeem(code)
    assert cookie is not None
    assert sessions.holder(cookie) == ALICE
    assert sessions.redeem(code) is None
    sessions.end(cookie)
    assert sessions.holder(cookie) is None


def test_codes_and_sessions_expire() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    code = sessions.new_code(ALICE)
    clock.now += CODE_SECONDS + 1
    assert sessions.redeem(code) is None
    cookie = sessions.begin(ALICE)
    clock.now += SESSION_SECONDS + 1
    assert sessions.holder(cookie) is None


@given(st.text())
def test_what_is_no_cookie_is_nobody_s(text: str) -> None:
    sessions = Sessions()
    sessions.begin(ALICE)
    assert sessions.holder(text) is None
    assert sessions.redeem(text) is None
