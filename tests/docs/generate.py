"""`python -m tests.docs.generate`: write every page that is made from the code.

The pages of the command line and of job specs are made by modules of the library; the
rest is read here, from sources that no single program imports.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Final

import hpcplat.cli.reference
import hpcplat.jobs.reference
from hpcplat.files import write_whole
from tests.docs import api, decisions, errors, metrics, settings, training

DOCS: Final = Path(__file__).parents[2] / "docs"


def _command_line() -> str:
    # Typer fits its help to the terminal's width.
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "80"
    try:
        with redirect_stdout(io.StringIO()):
            return hpcplat.cli.reference.page()
    finally:
        os.environ.pop("COLUMNS")
        if before is not None:
            os.environ["COLUMNS"] = before


PAGES: Final[dict[str, Callable[[], str]]] = {
    "decisions/index.md": decisions.page,
    "reference/api.md": api.page,
    "reference/cli.md": _command_line,
    "reference/errors.md": errors.page,
    "reference/job-spec.md": hpcplat.jobs.reference.page,
    "reference/metrics.md": metrics.page,
    "reference/settings.md": settings.page,
    "reference/training-settings.md": training.page,
}


def main() -> None:
    """Write all pages."""
    for name, page in PAGES.items():
        write_whole(DOCS / name, page())


if __name__ == "__main__":
    main()
