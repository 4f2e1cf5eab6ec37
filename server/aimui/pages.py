"""The few pages of our own around Aim: plain HTML, no script."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from starlette.responses import HTMLResponse

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; form-action 'self';"
        " frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_AGAIN = '<meta http-equiv="refresh" content="2">'
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:32rem;margin:4rem auto;"
    "padding:0 1rem;color:#1b1f24}input,button{font:inherit;padding:.4rem .6rem}"
    "input{width:100%;box-sizing:border-box;margin:.3rem 0 .8rem}"
)


def _page(title: str, body: str, status: int = 200, head: str = "") -> HTMLResponse:
    html = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">{head}'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>"
        f"<body><h1>{escape(title)}</h1>{body}</body></html>"
    )
    return HTMLResponse(html, status, HEADERS)


def login(base: str, then: str, problem: str = "") -> HTMLResponse:
    """Return the page that asks for a token, or says why the last one did not do."""
    said = f"<p><strong>{escape(problem)}</strong></p>" if problem else ""
    body = (
        f"{said}<p>Run <code>hpcplat ui</code> where you submit jobs: it opens this"
        " page with you logged in. Or paste a token of yours:</p>"
        f'<form method="post" action="{base}/login">'
        f'<input type="hidden" name="next" value="{escape(then)}">'
        '<label>Token<input name="token" type="password" autocomplete="off" required>'
        "</label><button>Log in</button></form>"
    )
    return _page("hpcplat: runs in Aim", body, 401)


def workspaces(base: str, names: Iterable[str]) -> HTMLResponse:
    """Return the page that lists the workspaces somebody may look into.

    While there is none it looks again and again.
    """
    rows = "".join(
        f'<li><a href="{base}/{escape(name)}/">{escape(name)}</a></li>'
        for name in names
    )
    if not rows:
        body = "<p>No run was tracked yet. This page looks again by itself.</p>"
        return _page("One moment", body, head=_AGAIN)
    button = "<button>Log out</button>"
    logout = f'<form method="post" action="{base}/logout">{button}</form>'
    return _page("Workspaces", f"<ul>{rows}</ul>{logout}")


def starting(workspace: str) -> HTMLResponse:
    """Return the page that waits for Aim to come up."""
    body = f"<p>Aim starts for workspace {escape(workspace)}: some ten seconds.</p>"
    return _page("One moment", body, 503, _AGAIN)


def problem(title: str, what: str, status: int, *, again: bool = False) -> HTMLResponse:
    """Return a page that says what is wrong, and looks ``again`` where that helps."""
    head = _AGAIN if again else ""
    return _page(title, f"<p>{escape(what)}</p>", status, head)
