"""What may pass between a browser and Aim: pure decisions."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import urlsplit

READING: Final = frozenset({"GET", "HEAD"})
# Calls of Aim's API that read although they are POST.
_READING_POSTS: Final = re.compile(
    r"/api/runs/(search/.+|[^/]+/[^/]+/get-batch|images/get-batch|[^/]+/get-batch"
    r"|[^/]+/[^/]+/get-step|search/metric/align)/?"
)
# Runs are the collector's: it would write on into what was deleted.
_RUNS_DELETED: Final = re.compile(r"/api/runs/(delete-batch/?|[^/]+/?)")

# Never passed on: between two hops only, or ours alone.
_HOP: Final = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_NOT_TO_AIM: Final = _HOP | {"host", "cookie", "authorization", "forwarded", "origin"}
_NOT_TO_BROWSER: Final = _HOP | {"set-cookie", "server", "date"}


def may_pass(method: str, path: str, *, writes: bool) -> bool:
    """Whether a call may reach Aim; ``path`` is below the UI's base path.

    Who may not write may look; nobody deletes runs.
    """
    if method in READING or (method == "POST" and _READING_POSTS.fullmatch(path)):
        return True
    if method in {"DELETE", "POST"} and _deletes_runs(method, path):
        return False
    return writes and method in {"POST", "PUT", "DELETE"}


def _deletes_runs(method: str, path: str) -> bool:
    match = _RUNS_DELETED.fullmatch(path)
    return match is not None and (
        method == "DELETE" or path.rstrip("/").endswith("batch")
    )


def is_from_elsewhere(origin: str | None, host: str) -> bool:
    """Whether a browser sends this from another site's page."""
    return origin is not None and urlsplit(origin).netloc != host


def to_aim(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the request headers that Aim gets: nothing that says who asks."""
    return [
        (name, value)
        for name, value in headers
        if name.lower() not in _NOT_TO_AIM
        and not name.lower().startswith("x-forwarded")
    ]


def to_browser(
    headers: Iterable[tuple[str, str]], policy: Mapping[str, str]
) -> list[tuple[str, str]]:
    """Return the response headers that the browser gets, with our ``policy``."""
    ours = {name.lower() for name in policy}
    kept = [
        (name, value)
        for name, value in headers
        if name.lower() not in _NOT_TO_BROWSER | ours
        and not name.lower().startswith("access-control-")
    ]
    return [*kept, *policy.items()]


def inline_scripts(page: str) -> list[str]:
    """Return the scripts that stand in a page itself."""
    return re.findall(r"<script>(.*?)</script>", page, re.DOTALL)


def security_headers(scripts: Iterable[str] = ()) -> dict[str, str]:
    """Return the headers under which pages of Aim run.

    ``scripts`` are the inline ones that may run, known by their hash. Nothing is
    fetched from other sites, nor sent there; other sites may not frame the UI.
    """
    hashes = [base64.b64encode(hashlib.sha256(s.encode()).digest()) for s in scripts]
    allowed = " ".join(f"'sha256-{digest.decode()}'" for digest in hashes)
    policy = {
        "default-src": "'self'",
        # The editor of queries makes functions from text: it does not start without.
        "script-src": f"'self' 'unsafe-eval' {allowed}".strip(),
        "style-src": "'self' 'unsafe-inline'",
        "img-src": "'self' data: blob:",
        "font-src": "'self' data:",
        "worker-src": "'self' blob:",
        "connect-src": "'self'",
        "object-src": "'none'",
        "base-uri": "'none'",
        "form-action": "'self'",
        "frame-ancestors": "'none'",
    }
    return {
        "Content-Security-Policy": "; ".join(f"{k} {v}" for k, v in policy.items()),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "same-origin",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
    }


def safe_next(path: str, base: str) -> str:
    """Return where to go after the login: a path of ours, whatever was asked."""
    parts = urlsplit(path)
    inside = parts.path == base or parts.path.startswith(f"{base}/")
    if parts.scheme or parts.netloc or not inside or "\\" in path or "//" in parts.path:
        return f"{base}/"
    if any(not letter.isprintable() for letter in path) or "/.." in parts.path:
        return f"{base}/"
    return path
