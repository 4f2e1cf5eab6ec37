"""The HTTP client: what it sends, and what it makes of answers, good and bad."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from hpcplat.client import Client, RefusedError, ServiceFaultError, connect
from hpcplat.embedding import EmbeddedTransport
from hpcplat.errors import (
    ConflictError,
    ForbiddenError,
    NotFoundError,
    UnavailableError,
)
from hpcplat.settings import read_settings

Handler = Callable[[httpx.Request], httpx.Response]


def client(handler: Handler) -> Client:
    transport = httpx.MockTransport(handler)
    return Client(httpx.Client(base_url="http://test", transport=transport))


def problem(status: int, **fields: Any) -> Handler:  # noqa: ANN401
    return lambda _request: httpx.Response(status, json={"status": status, **fields})


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, ForbiddenError),
        (403, ForbiddenError),
        (404, NotFoundError),
        (409, ConflictError),
        (413, RefusedError),
        (422, RefusedError),
        (503, UnavailableError),
        (500, ServiceFaultError),
        (302, ServiceFaultError),
    ],
)
def test_problems_become_errors_with_the_services_words(
    status: int, kind: type[Exception]
) -> None:
    with pytest.raises(kind, match=r"So it is\. Do that\."):
        client(problem(status, detail="So it is.", remedy="Do that.")).job("abcd")


def test_each_field_that_is_wrong_is_told() -> None:
    errors = [{"field": "spec.name", "detail": "It is missing.", "remedy": "Give it."}]
    with pytest.raises(RefusedError) as raised:
        client(problem(422, detail="x", errors=errors, job_id="j")).submit({})
    assert raised.value.errors == (("spec.name", "It is missing.", "Give it."),)
    assert raised.value.job_id == "j"


def test_a_page_of_a_proxy_is_no_answer() -> None:
    def page(_request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, text="<html>Log in</html>")

    with pytest.raises(UnavailableError, match="HPCPLAT_URL"):
        client(page).job("abcd")
    with pytest.raises(UnavailableError):
        client(lambda _r: httpx.Response(503, text="<html>")).job("abcd")


def test_a_service_that_is_not_there_is_one_line() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("Connection refused", request=request)

    with pytest.raises(UnavailableError, match="does not answer") as raised:
        client(refuse).jobs()
    assert "\n" not in str(raised.value)


def test_a_job_is_submitted_with_its_key_and_its_wait() -> None:
    seen: list[httpx.Request] = []

    def take(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(201, json={"id": "x"})

    client(take).submit({"name": "a"}, idempotency_key="k", wait=3, secrets={"A": "b"})
    [request] = seen
    assert request.url.path == "/api/v1/jobs"
    assert request.url.params["wait"] == "3"
    assert request.headers["idempotency-key"] == "k"
    assert json.loads(request.content) == {"spec": {"name": "a"}, "secrets": {"A": "b"}}


def test_pages_are_followed_up_to_the_limit() -> None:
    def pages(request: httpx.Request) -> httpx.Response:
        start = int(request.url.params.get("cursor", "0"))
        limit = int(request.url.params["limit"])
        found = [{"id": str(n)} for n in range(start, min(start + min(limit, 2), 5))]
        end = start + len(found)
        return httpx.Response(
            200, json={"jobs": found, "next_cursor": str(end) if end < 5 else None}
        )

    assert [job["id"] for job in client(pages).jobs()] == ["0", "1", "2", "3", "4"]
    assert [job["id"] for job in client(pages).jobs(limit=3)] == ["0", "1", "2"]


def test_ids_cannot_leave_their_place_in_the_path() -> None:
    def show(request: httpx.Request) -> httpx.Response:
        return httpx.Response(404, json={"detail": request.url.raw_path.decode()})

    with pytest.raises(NotFoundError, match=r"%2F\.\.%2Fnodes"):
        client(show).job("/../nodes")


def test_a_stream_is_read_message_by_message() -> None:
    text = (
        "id: 1\nevent: log\ndata: one\ndata: \n\n: alive\n\n"
        "id: 2\nevent: end\ndata: {}\n\n"
    )
    seen: list[str | None] = []

    def stream(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("last-event-id"))
        return httpx.Response(200, text=text)

    found = list(client(stream).follow_logs("abcd", last_id="0:7", rank=2))
    assert [(m.kind, m.data, m.id) for m in found] == [
        ("log", "one\n", "1"),
        ("end", "{}", "2"),
    ]
    assert seen == ["0:7"]


async def tiny_app(scope: dict[str, Any], receive: Any, send: Any) -> None:  # noqa: ANN401
    if scope["type"] == "lifespan":
        await receive()
        scope["state"]["name"] = "tiny"
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    if scope["path"] == "/fail":
        raise RuntimeError("inside")
    body = (await receive())["body"]
    await send({"type": "http.response.start", "status": 200, "headers": []})
    told = f"{scope['state']['name']} {scope['state']['peer'].uid} ".encode()
    for piece in (told, body, b" " + scope["query_string"]):
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    if scope["path"] == "/endless":
        await receive()  # until the client has gone
    await send({"type": "http.response.body", "body": b""})


@pytest.fixture
def embedded() -> Iterator[httpx.Client]:
    transport = EmbeddedTransport(tiny_app, uid=7)  # type: ignore[arg-type]
    with httpx.Client(transport=transport, base_url="http://embedded") as found:
        yield found


def test_an_app_in_this_process_answers(embedded: httpx.Client) -> None:
    answer = embedded.post("/", content=b"hello", params={"a": "b c"})
    assert answer.text == "tiny 7 hello a=b+c"


def test_a_stream_of_an_app_in_this_process_comes_as_it_is_sent(
    embedded: httpx.Client,
) -> None:
    with embedded.stream("POST", "/endless", content=b"x") as answer:
        pieces = answer.iter_raw()
        assert next(pieces) == b"tiny 7 "
        assert next(pieces) == b"x"


def test_what_an_app_raises_is_raised(embedded: httpx.Client) -> None:
    with pytest.raises(RuntimeError, match="inside"):
        embedded.get("/fail")


def test_an_app_that_does_not_start_is_told() -> None:
    async def broken(scope: dict[str, Any], receive: Any, send: Any) -> None:  # noqa: ANN401
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no"})

    with pytest.raises(UnavailableError, match="did not start"):
        EmbeddedTransport(broken, uid=7)  # type: ignore[arg-type]


def test_without_a_service_the_app_is_found_by_its_entry_point(tmp_path: Path) -> None:
    environ = {"HPCPLAT_DATA": str(tmp_path)}
    with connect(read_settings(environ)) as found:
        assert found.health()["status"] == "ok"
    assert (tmp_path / "hpcplat.db").is_file()
