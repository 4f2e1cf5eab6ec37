"""`hpcplat usage`: GPU-hours by workspace, member and project, from accounting."""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from hpcplat.cli.session import print_json, service
from hpcplat.cli.tables import Column, shown

app = typer.Typer()

FIELDS: Final = (
    *("workspace", "user", "project", "jobs"),
    *("gpu_hours_asked", "gpu_hours", "gpu_hours_idle", "gpu_hours_unknown"),
    *("cpu_hours", "price"),
)
USAGE: Final = (
    Column("WORKSPACE", lambda row: row["workspace"]),
    Column("USER", lambda row: row["user"]),
    Column("PROJECT", lambda row: row["project"], rank=1),
    Column("JOBS", lambda row: str(row["jobs"]), right=True),
    Column("ASKED", lambda row: f"{row['gpu_hours_asked']:.2f}", right=True, rank=2),
    Column("GPU-HOURS", lambda row: f"{row['gpu_hours']:.2f}", right=True),
    Column("IDLE", lambda row: _idle(row), right=True),
    Column(
        "UNKNOWN", lambda row: f"{row['gpu_hours_unknown']:.2f}", right=True, rank=2
    ),
    Column("CPU-HOURS", lambda row: f"{row['cpu_hours']:.2f}", right=True, rank=1),
    Column("PRICE", lambda row: "" if row["price"] is None else f"{row['price']:.2f}"),
)


class Form(StrEnum):
    """How the report is printed."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


@app.command()
def usage(
    *,
    since: Annotated[str, typer.Option(help="A date, such as 2026-01-01.")],
    until: Annotated[str | None, typer.Option(help="By default now.")] = None,
    form: Annotated[Form, typer.Option("--format")] = Form.TABLE,
) -> None:
    """Report what was used: your own; your members' if you own the workspace.

    IDLE are the GPU-hours in which no rank made steps, no step of Slurm's ran, or every
    sample found the GPU at 0 %. UNKNOWN are those in which something ran, and nobody
    saw whether on the GPUs.
    """
    with service() as client:
        answer = client.usage(since, until)
    match form:
        case Form.JSON:
            print_json(answer)
        case Form.CSV:
            writer = csv.DictWriter(sys.stdout, FIELDS)
            writer.writeheader()
            writer.writerows(answer["rows"])
        case Form.TABLE:
            if answer["rows"]:
                print(shown(answer["rows"], USAGE))


def _idle(row: Mapping[str, Any]) -> str:
    """Return the idle hours; a word where of all hours nothing is known."""
    is_dark = 0 < row["gpu_hours"] <= row["gpu_hours_unknown"]
    return "unknown" if is_dark else f"{row['gpu_hours_idle']:.2f}"
