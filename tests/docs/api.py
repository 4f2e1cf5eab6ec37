"""docs/reference/api.md: every route of the service, from its OpenAPI document."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any, Final

from hpcplat.settings import read_settings
from server.app import create_app, make_service
from tests.docs.sources import cell

HEAD: Final = """# The HTTP API

<!-- Made by `python -m tests.docs.generate`. -->

The service answers under `/api/v1`. Its OpenAPI document is `/api/v1/openapi.json`, and
`/api/v1/docs` lets you try it in a browser. Who asks is told by `Authorization: Bearer TOKEN`;
on the service's Unix socket the kernel tells it, and no token is needed:

```console
$ curl --unix-socket /run/hpcplat/service.sock http://localhost/api/v1/health
```

Errors are problem documents (RFC 9457, `application/problem+json`) that say what is wrong,
in which field, and what to do. A `POST` of a job takes an `Idempotency-Key`: sent twice, it
is one job.
"""


def page() -> str:
    """Return the page: a table for each part of the API."""
    with tempfile.TemporaryDirectory() as folder:
        settings = read_settings({"HPCPLAT_DATA": folder, "HPCPLAT_URL": ""})
        service = make_service(settings, environ={})
        try:
            document = create_app(service, threads=False).openapi()
        finally:
            service.database.close()
    return "\n".join([HEAD, *_tables(document)])


def _tables(document: dict[str, Any]) -> Iterator[str]:
    parts: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            (tag,) = operation["tags"]
            parts.setdefault(tag, []).append(_row(method, path, operation))
    for tag, rows in parts.items():
        yield f"## {tag.capitalize()}\n\n| request | what it does | parameters |\n|---|---|---|"
        yield from rows
        yield ""


def _row(method: str, path: str, operation: dict[str, Any]) -> str:
    names = [
        f"`{one['name']}`" + ("" if one["required"] else "?")
        for one in operation.get("parameters", [])
        if one["in"] in {"query", "header"}
    ]
    summary = cell(operation["summary"])
    return f"| `{method.upper()} {path}` | {summary} | {', '.join(names)} |"
