"""docs/decisions/index.md: the list of the decisions, from their titles."""

from __future__ import annotations

from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parents[2] / "docs/decisions"
HEAD: Final = """# Decisions

<!-- Made by `python -m tests.docs.generate`. -->

A page each: what was chosen, what was turned down, and why.

"""


def page() -> str:
    """Return the page: a link to each decision, in the order of the titles."""
    titles = {
        path.name: path.read_text().split("\n", 1)[0].removeprefix("# ")
        for path in FOLDER.glob("*.md")
        if path.name != "index.md"
    }
    lines = [
        f"- [{title}]({name})" for name, title in sorted(titles.items(), key=_title)
    ]
    return HEAD + "\n".join(lines) + "\n"


def _title(pair: tuple[str, str]) -> str:
    return pair[1].lstrip("`").lower()
