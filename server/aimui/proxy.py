"""/aim: the Aim UI behind the login, a workspace at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import parse_qs

import httpx
from fastapi import APIRouter, Depends, Request
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response, StreamingResponse

from hpcplat.errors import HpcplatError, NotFoundError
from server import auth
from server.aimui import pages, rules
from server.aimui.host import AimHost
from server.aimui.sessions import SESSION_SECONDS, Sessions
from server.auth import Principal

COOKIE: Final = "hpcplat_ui"
LONGEST_FORM: Final = 8192
METHODS: Final = ["GET", "HEAD", "POST", "PUT", "DELETE"]
TIMEOUT: Final = httpx.Timeout(10.0, read=300.0)  # a search over many runs takes long


@dataclass(frozen=True, slots=True)
class AimGate:
    """What the proxy needs: UIs, sessions, who a token is, who may see what.

    ``sees`` gives the workspaces of a principal and whether they may write there.
    ``secure``: browsers come by HTTPS alone, so the cookie must too.
    """

    host: AimHost
    sessions: Sessions
    holder: Callable[[str], Principal | None]
    sees: Callable[[Principal], Mapping[str, bool]]
    secure: bool = False
    clients: dict[Path, httpx.AsyncClient] = field(default_factory=dict)

    def client(self, socket: Path) -> httpx.AsyncClient:
        """Return the client of a UI's socket."""
        if socket not in self.clients:
            transport = httpx.AsyncHTTPTransport(uds=str(socket), retries=1)
            self.clients[socket] = httpx.AsyncClient(
                transport=transport, base_url="http://aim", timeout=TIMEOUT
            )
        return self.clients[socket]

    async def close(self) -> None:
        """End the connections and the UIs."""
        for client in self.clients.values():
            await client.aclose()
        await run_in_threadpool(self.host.close)


router = APIRouter(prefix="/aim", include_in_schema=False)


def gate(request: Request) -> AimGate:
    """Return the gate that this app was made with."""
    found: AimGate = request.app.state.aim
    return found


Gate = Annotated[AimGate, Depends(gate)]


@router.get("")
@router.get("/")
async def index(request: Request, passing: Gate) -> Response:
    """List the workspaces; go on to the only one."""
    principal = _principal(request, passing)
    base = passing.host.base
    if principal is None:
        return pages.login(base, f"{base}/")
    names = list(await run_in_threadpool(passing.sees, principal))
    if len(names) == 1:
        return _redirect(f"{passing.host.base_of(names[0])}/")
    return pages.workspaces(base, names)


@router.get("/login")
async def login(request: Request, passing: Gate) -> Response:
    """Turn a one-time code into a session, or ask for a token."""
    base = passing.host.base
    then = rules.safe_next(request.query_params.get("next", ""), base)
    code = request.query_params.get("code")
    if code is None:
        return pages.login(base, then)
    cookie = passing.sessions.redeem(code)
    if cookie is None:
        return pages.login(base, then, "This address was used or is too old.")
    return _logged_in(request, passing, cookie, then)


@router.post("/login")
async def login_by_token(request: Request, passing: Gate) -> Response:
    """Turn a token into a session."""
    base = passing.host.base
    form = await _form(request)
    then = rules.safe_next(form.get("next", ""), base)
    if _is_foreign(request):
        return pages.problem("Refused", "This came from another site's page.", 403)
    token = form.get("token", "").strip()
    principal = await run_in_threadpool(passing.holder, auth.digest(token))
    if principal is None:
        return pages.login(base, then, "The token is not valid (any more).")
    return _logged_in(request, passing, passing.sessions.begin(principal), then)


@router.post("/logout")
async def logout(request: Request, passing: Gate) -> Response:
    """End the session."""
    passing.sessions.end(request.cookies.get(COOKIE, ""))
    response = _redirect(f"{passing.host.base}/")
    response.delete_cookie(COOKIE, path=passing.host.base)
    return response


@router.api_route("/{workspace}", methods=METHODS)
@router.api_route("/{workspace}/{path:path}", methods=METHODS)
async def aim(
    request: Request, passing: Gate, workspace: str, path: str = ""
) -> Response:
    """Pass a call on to a workspace's Aim, if it may pass."""
    principal = _principal(request, passing)
    if principal is None:
        asked = request.url.path + (
            f"?{request.url.query}" if request.url.query else ""
        )
        return pages.login(passing.host.base, rules.safe_next(asked, passing.host.base))
    seen = await run_in_threadpool(passing.sees, principal)
    if workspace not in seen:
        return pages.problem("Not found", "There is no such workspace for you.", 404)
    if not rules.may_pass(request.method, f"/{path}", writes=seen[workspace]):
        return pages.problem("Refused", "This may be looked at only.", 403)
    if request.method not in rules.READING and _is_foreign(request):
        return pages.problem("Refused", "This came from another site's page.", 403)
    return await _pass_on(request, passing, workspace)


async def _pass_on(request: Request, passing: AimGate, workspace: str) -> Response:
    try:
        socket = await run_in_threadpool(passing.host.socket, workspace)
    except NotFoundError as error:
        return pages.problem("Nothing yet", str(error), 404, again=True)
    except HpcplatError as error:
        return pages.problem("Aim does not run", str(error), 503)
    if socket is None:
        return pages.starting(workspace)
    try:
        return await _exchange(request, passing.client(socket))
    except httpx.TransportError:
        return pages.starting(workspace)


async def _exchange(request: Request, client: httpx.AsyncClient) -> Response:
    asked = client.build_request(
        request.method,
        httpx.URL(raw_path=_raw_path(request)),
        headers=rules.to_aim(request.headers.items()),
        content=request.stream() if request.method in {"POST", "PUT"} else None,
    )
    answer = await client.send(asked, stream=True)
    if answer.headers.get("content-type", "").startswith("text/html"):
        return await _html(answer)
    headers = rules.to_browser(answer.headers.multi_items(), rules.security_headers())
    response = StreamingResponse(
        answer.aiter_raw(), answer.status_code, background=BackgroundTask(answer.aclose)
    )
    response.raw_headers = [(k.encode(), v.encode()) for k, v in headers]
    return response


async def _html(answer: httpx.Response) -> Response:
    """Return Aim's page, whose own inline scripts alone may run."""
    page = await answer.aread()
    await answer.aclose()
    scripts = rules.inline_scripts(page.decode(errors="replace"))
    headers = rules.security_headers(scripts) | {"Cache-Control": "no-store"}
    kind = answer.headers["content-type"]
    return Response(page, answer.status_code, headers, media_type=kind)


def _raw_path(request: Request) -> bytes:
    path: bytes = request.scope.get("raw_path") or request.url.path.encode()
    query: bytes = request.scope["query_string"]
    return path.partition(b"?")[0] + (b"?" + query if query else b"")


def _principal(request: Request, passing: AimGate) -> Principal | None:
    return passing.sessions.holder(request.cookies.get(COOKIE, ""))


def _is_foreign(request: Request) -> bool:
    host = request.headers.get("host", "")
    return rules.is_from_elsewhere(request.headers.get("origin"), host)


def _redirect(path: str) -> RedirectResponse:
    return RedirectResponse(path, 303, headers={"Cache-Control": "no-store"})


def _logged_in(request: Request, passing: AimGate, cookie: str, then: str) -> Response:
    response = _redirect(then)
    response.set_cookie(
        COOKIE,
        cookie,
        max_age=int(SESSION_SECONDS),
        path=passing.host.base,
        httponly=True,
        samesite="lax",
        secure=passing.secure or _came_by_https(request),
    )
    return response


def _came_by_https(request: Request) -> bool:
    """Whether a proxy in front says so; nobody wins by forging it: it only forbids."""
    said = request.headers.get("x-forwarded-proto", "").partition(",")[0]
    return "https" in {request.url.scheme, said.strip().lower()}


async def _form(request: Request) -> dict[str, str]:
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > LONGEST_FORM:
            return {}
    fields = parse_qs(body.decode(errors="replace"), max_num_fields=10)
    return {name: values[0] for name, values in fields.items()}
