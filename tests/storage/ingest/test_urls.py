"""Sources behind URLs: a real HTTP server on this machine, and fsspec's memory."""

from __future__ import annotations

import functools
import gzip
import http.server
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec  # type: ignore[import-untyped]
import pytest

from hpcplat.datasets.version import DatasetVersion
from hpcplat.errors import UnavailableError
from storage.ingest.sources import without_secrets

Ingest = Callable[..., DatasetVersion]


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(corpus: Path) -> Iterator[str]:
    handler = functools.partial(_Quiet, directory=str(corpus.parent))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


@pytest.mark.parametrize("packing", ["", ".gz"])
def test_http_sources(
    ingest_text: Ingest, corpus: Path, server: str, packing: str
) -> None:
    if packing:
        path = corpus.with_name("corpus.jsonl.gz")
        path.write_bytes(gzip.compress(corpus.read_bytes()))
    version = ingest_text([f"{server}/corpus.jsonl{packing}"])
    assert version.digest == ingest_text([corpus], name="file").digest


def test_what_is_not_there_is_named(ingest_text: Ingest, server: str) -> None:
    with pytest.raises(UnavailableError, match=r"absent\.jsonl is gone"):
        ingest_text([f"{server}/absent.jsonl"])


def test_a_server_that_does_not_answer_is_named(ingest_text: Ingest) -> None:
    with pytest.raises(UnavailableError, match=r"http://127\.0\.0\.1:9/x\.jsonl"):
        ingest_text(["http://127.0.0.1:9/x.jsonl"])


def test_patterns_of_other_file_systems(ingest_text: Ingest, corpus: Path) -> None:
    memory = fsspec.filesystem("memory")
    lines = corpus.read_bytes().splitlines(keepends=True)
    memory.pipe("/bucket/0.jsonl", b"".join(lines[:700]))
    memory.pipe("/bucket/1.jsonl", b"".join(lines[700:]))
    version = ingest_text(["memory://bucket/*.jsonl"])
    assert version.digest == ingest_text([corpus], name="file").digest


def test_a_file_system_without_its_library(ingest_text: Ingest) -> None:
    with pytest.raises(UnavailableError, match="s3fs"):
        ingest_text(["s3://bucket/x.jsonl"])


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("https://user:secret@host/a.txt?sig=x#y", "https://host/a.txt"),
        ("/plain/path?x", "/plain/path?x"),
        ("postgresql://me:pw@db:5432/x", "postgresql://db:5432/x"),
        ("s3://bucket/key", "s3://bucket/key"),
    ],
)
def test_secrets_are_not_written_down(path: str, shown: str) -> None:
    assert without_secrets(path) == shown
