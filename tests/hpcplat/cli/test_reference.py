"""The command line's reference page has every command and option."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hpcplat.cli.reference import page

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "cli.md"
AGAIN = (
    "make it again: COLUMNS=80 python -m hpcplat.cli.reference docs/reference/cli.md"
)

pytestmark = pytest.mark.slow


def test_the_page_is_of_this_release() -> None:
    """Releases of Typer lay text out differently: titles and options are compared."""
    pattern = re.compile(r"^#+ hpcplat .*|--[a-z][a-z-]+", re.MULTILINE)
    assert set(pattern.findall(page())) == set(pattern.findall(PAGE.read_text())), AGAIN
