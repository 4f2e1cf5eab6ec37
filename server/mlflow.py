"""/mlflow/WORKSPACE: MLflow's tracking API for what runs outside of jobs.

``MLFLOW_TRACKING_URI=https://SITE/mlflow/TEAM`` with a token of hpcplat's as
``MLFLOW_TRACKING_TOKEN``. Each MLflow run becomes a run folder of the service's own,
which the collector takes to the workspace's Aim like any other. (Jobs have an endpoint
on their own node: hpcplat.tracking.mlflow_server.)
"""

from __future__ import annotations

import os
import re
import threading
from collections import OrderedDict
from http import HTTPStatus
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response

from hpcplat.errors import ForbiddenError, InvalidError, NotFoundError
from hpcplat.foreign import read_object
from hpcplat.tracking.mlflow_api import answer
from hpcplat.tracking.mlflow_job import FOLDER as JOB_FOLDER
from hpcplat.tracking.mlflow_store import ARTIFACTS, RUNS, MlflowStore
from hpcplat.tracking.writer import MetricsWriter
from server.aimui.proxy import Gate
from server.collector.mlflow_runs import TRACKED
from server.dependencies import Asking, limited_body

MOST_OPEN: Final = 64  # stores; each holds what its runs logged last
LARGEST_CALL: Final = 32 * 1024 * 1024  # bytes
LARGEST_ARTIFACT: Final = 5 * 1024**3
CHUNK: Final = 1024 * 1024
_PERSON: Final = re.compile(r"[A-Za-z0-9._-]+")


class MlflowSite:
    """The stores of this service: one for each workspace and user."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._stores: OrderedDict[Path, MlflowStore] = OrderedDict()

    def store(self, workspace: str, user: str) -> MlflowStore:
        """Return a user's store in a workspace; the longest unused one is closed."""
        folder = self.place(workspace, user)
        with self._lock:
            found = self._stores.pop(folder, None) or self._open(folder)
            self._stores[folder] = found
            while len(self._stores) > MOST_OPEN:
                self._stores.popitem(last=False)[1].close()
            return found

    def place(self, workspace: str, user: str) -> Path:
        """Return a user's folder; a name that is no plain one is refused."""
        for name in (workspace, user):
            if not _PERSON.fullmatch(name) or name.startswith("."):
                raise InvalidError(f"{name!r} can't be the name of a folder.")
        return self.folder / workspace / user

    def close(self) -> None:
        """Write what waits."""
        with self._lock:
            while self._stores:
                self._stores.popitem()[1].close()

    def _open(self, folder: Path) -> MlflowStore:
        return MlflowStore(
            folder, lambda number: _new_run(folder, number), "mlflow-artifacts:"
        )


def _new_run(folder: Path, number: str) -> MetricsWriter:
    """Make the run folder of an MLflow run, and return its writer."""
    run = folder / TRACKED / number
    runs = run / JOB_FOLDER / "service" / RUNS
    if not runs.is_dir():
        runs.mkdir(parents=True)
        # So that the run's parameters are found as those of a job's MLflow run are.
        (runs / f"{number}.json").symlink_to(folder / RUNS / f"{number}.json")
    return MetricsWriter(run)


router = APIRouter(prefix="/mlflow/{workspace}", include_in_schema=False)


def site(request: Request) -> MlflowSite:
    """Return the stores that this app was made with."""
    found: MlflowSite = request.app.state.mlflow
    return found


def permitted(workspace: str, asking: Asking, gate: Gate) -> str:
    """Return the workspace, if the one who asks may write there."""
    writes = gate.sees(asking).get(workspace)
    if writes is None:
        raise NotFoundError(f"There is no workspace {workspace!r} for you.")
    if not writes:
        raise ForbiddenError("Viewers log no runs.", "Ask an owner of the workspace.")
    return workspace


Site = Annotated[MlflowSite, Depends(site)]
Permitted = Annotated[str, Depends(permitted)]


@router.get("/version")
def version() -> Response:
    """Say which MLflow this is like."""
    return PlainTextResponse("3.0.0")


@router.api_route("/api/2.0/mlflow/{path:path}", methods=["GET", "POST", "PATCH"])
@router.api_route("/api/3.0/mlflow/{path:path}", methods=["GET", "POST", "PATCH"])
async def call(
    request: Request, stores: Site, workspace: Permitted, asking: Asking, path: str
) -> Response:
    """Answer one call of MLflow's client."""
    words: dict[str, Any] = dict(request.query_params)
    body = await limited_body(request, LARGEST_CALL)
    if body:
        given = read_object(body)
        if given is None:
            raise InvalidError("The body is no JSON object.")
        words.update(given)
    store = await run_in_threadpool(stores.store, workspace, asking.name)
    found = await run_in_threadpool(answer, store, request.method, path, words)
    return JSONResponse(found.body, found.status)


_FILES: Final = "/api/2.0/mlflow-artifacts/artifacts"


@router.get(_FILES)
def list_artifacts(
    stores: Site, workspace: Permitted, asking: Asking, path: str = ""
) -> Response:
    """List a folder of artifacts."""
    folder = _artifact(stores.place(workspace, asking.name), path)
    entries = sorted(folder.iterdir()) if folder.is_dir() else []
    files = [
        {"path": e.name, "is_dir": e.is_dir(), "file_size": e.stat().st_size}
        for e in entries
    ]
    return JSONResponse({"files": files})


@router.get(_FILES + "/{path:path}")
def get_artifact(
    stores: Site, workspace: Permitted, asking: Asking, path: str
) -> Response:
    """Return an artifact."""
    found = _artifact(stores.place(workspace, asking.name), path)
    if not found.is_file():
        raise NotFoundError(f"There is no artifact {path}.")
    return FileResponse(found, media_type="application/octet-stream")


@router.put(_FILES + "/{path:path}")
async def put_artifact(
    request: Request, stores: Site, workspace: Permitted, asking: Asking, path: str
) -> Response:
    """Keep an artifact, whole or not at all."""
    target = _artifact(stores.place(workspace, asking.name), path)
    await run_in_threadpool(target.parent.mkdir, parents=True, exist_ok=True)
    aside = target.with_name(f".{target.name}.{os.urandom(4).hex()}")
    size = 0
    try:
        with aside.open("xb") as file:
            async for piece in request.stream():
                size += len(piece)
                if size > LARGEST_ARTIFACT:
                    raise InvalidError("An artifact has 5 GiB at most.", "Split it.")
                await run_in_threadpool(file.write, piece)
        aside.replace(target)
    finally:
        aside.unlink(missing_ok=True)
    return JSONResponse({}, HTTPStatus.OK)


def _artifact(folder: Path, path: str) -> Path:
    """Return where an artifact is; a path that leaves the artifacts is refused."""
    parts = PurePosixPath(path).parts
    if not parts or parts[0] != ARTIFACTS or ".." in parts or "\0" in path:
        raise NotFoundError(f"There is no artifact {path!r}.")
    return folder.joinpath(*parts)
