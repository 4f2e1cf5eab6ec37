"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Root = Annotated[
    Path | None, typer.Option(help="Folder of all datasets; your own if not given.")
]
Version = Annotated[
    str, typer.Argument(metavar="NAME[@VERSION]", help="A dataset; tag or digest.")
]
