"""The OpenAPI document: complete, and whatever schemathesis makes of it never fails us."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from server.app import create_app
from server.auth import Peer
from server.database import Database
from server.service import Service
from tests.server.fakes import FakeSlurm

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with tempfile.TemporaryDirectory() as folder:
        database = Database(f"sqlite:///{folder}/hpcplat.db")
        database.migrate()
        yield Service(database, FakeSlurm(), runs=str(Path(folder) / "runs"))
        database.close()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_request_makes_the_service_fail(
    service: Service, subtests: pytest.Subtests
) -> None:
    app = create_app(service, threads=False)

    answered: Counter[int] = Counter()

    async def as_me(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401
        async def counting(message: Any) -> None:  # noqa: ANN401
            answered[message.get("status", 0)] += 1
            await send(message)

        if scope["type"] == "http":
            scope.setdefault("state", {})["peer"] = Peer(os.geteuid())
            # Made-up tokens would be refused before anything else is tried.
            kept = [h for h in scope["headers"] if h[0] != b"authorization"]
            scope = {**scope, "headers": kept}
        await app(scope, receive, counting)

    schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", as_me)
    operations: list[Any] = [
        getattr(result, "ok")()  # noqa: B009 - a result that is none fails here
        for result in schema.get_all_operations()
    ]
    assert len(operations) >= 18
    for operation in operations:
        for mode in GenerationMode:
            with subtests.test(f"{operation.label} {mode.value}"):
                _try(operation, mode)
    # Not only refusals: some of what it made up was right.
    assert answered[200] + answered[201] > 50, answered
    assert answered[422] > 50, answered


def _try(operation: Any, mode: GenerationMode) -> None:  # noqa: ANN401 - not typed there
    @settings(
        max_examples=15,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def run(case: Any) -> None:  # noqa: ANN401
        case.call_and_validate(checks=CHECKS)

    run()


def test_each_operation_says_what_it_does_and_how_it_refuses(service: Service) -> None:
    document = create_app(service, threads=False).openapi()
    assert document["openapi"].startswith("3.1")
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            where = f"{method} {path}"
            assert operation["summary"], where
            assert operation["tags"], where
            refusals = operation["responses"]["422"]["content"]
            problem = refusals["application/problem+json"]["schema"]["$ref"]
            assert problem == "#/components/schemas/Problem", where


def test_the_body_of_a_job_is_described_with_an_example(service: Service) -> None:
    document = create_app(service, threads=False).openapi()
    body = document["paths"]["/api/v1/jobs"]["post"]["requestBody"]
    assert body["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/JobRequest"
    }
    schemas = document["components"]["schemas"]
    assert schemas["JobRequest"]["examples"]
    assert "gpus_per_node" in schemas["Resources"]["properties"]
    referred = str(document)
    for name in referred.split("#/components/schemas/")[1:]:
        assert name.split("'")[0] in schemas
