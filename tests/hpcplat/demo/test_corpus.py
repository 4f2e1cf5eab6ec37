"""The demo's text is the standard library's, whole and without its tests."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from hpcplat.demo.corpus import write_corpus


@pytest.mark.slow
def test_every_module_as_text(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus")
    written = list((tmp_path / "corpus").iterdir())
    assert len(written) == corpus.files > 300
    assert sum(path.stat().st_size for path in written) == corpus.bytes
    copied = (tmp_path / "corpus" / "argparse.py.txt").read_text()
    assert copied == Path(argparse.__file__).read_text()
    assert not any(path.name.startswith("test.") for path in written)
