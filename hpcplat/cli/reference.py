"""docs/reference/cli.md: every command's own help, made by the program itself.

``COLUMNS=80 python -m hpcplat.cli.reference docs/reference/cli.md``
"""

from __future__ import annotations

import contextlib
import importlib
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from hpcplat.cli.commands import COMMANDS, DROP_INS
from hpcplat.cli.main import main, overview
from hpcplat.files import write_whole

HEAD = """# The command line

<!-- Made by `COLUMNS=80 python -m hpcplat.cli.reference docs/reference/cli.md`. -->

On a terminal, lists are tables that fit it; otherwise they are one line a row, cells
between tabs, with no title and no colour, for `cut`, `awk` and `sort`. `--json` prints all
there is. Wherever a job is asked for, its id will do, a beginning of the id that no other
job has, its name, or Slurm's number of it; a task of an array is `JOB_4`. Exit codes are
[documented](exit-codes.md) and don't change.

```text
{overview}
```
"""


def page() -> str:
    """Return the page: the overview, then the help of each command."""
    sbatch = importlib.import_module(DROP_INS["sbatch"].module).HELP
    parts = [HEAD.format(overview=overview())]
    parts += [_section(words, _help_of(words)) for words in commands()]
    parts.append(_section(["sbatch"], sbatch))
    return "\n".join(parts)


def commands() -> Iterator[list[str]]:
    """Yield the words of every command and of every command below it."""
    for name, entry in COMMANDS.items():
        yield [name]
        command: Any = typer.main.get_command(importlib.import_module(entry.module).app)
        for below in getattr(command, "commands", {}):
            yield [name, below]


def _section(words: list[str], text: str) -> str:
    title = f"{'#' * (1 + len(words))} hpcplat {' '.join(words)}"
    return f"{title}\n\n```text\n{text.rstrip()}\n```\n"


def _help_of(words: list[str]) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        main([*words, "--help"])
    return printed.getvalue()


if __name__ == "__main__":
    write_whole(Path(sys.argv[1]), page())
