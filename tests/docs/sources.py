"""The code of the project as syntax trees: what pages are read from."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

PROJECT: Final = Path(__file__).parents[2]
PACKAGES: Final = ("hpcplat", "server", "launchers", "storage")


@cache
def trees() -> tuple[tuple[str, ast.Module], ...]:
    """Return (path in the project, tree) of every module, in the order of paths."""
    return tuple(_trees())


def _trees() -> Iterator[tuple[str, ast.Module]]:
    for package in PACKAGES:
        for path in sorted((PROJECT / package).rglob("*.py")):
            name = path.relative_to(PROJECT).as_posix()
            yield name, ast.parse(path.read_text(), name)


def first_line(node: ast.Module | ast.ClassDef) -> str:
    """Return the first sentence of a docstring."""
    text = ast.get_docstring(node) or ""
    return " ".join(text.split("\n\n")[0].split())


def cell(text: str) -> str:
    """Return text that is safe in a cell of a Markdown table."""
    safe = text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
    return " ".join(safe.split())
