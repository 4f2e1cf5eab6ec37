"""`hpcplat usage`: GPU-hours by workspace, member and project, from accounting."""

from __future__ import annotations

import csv
import sys
from enum import StrEnum
from typing import Annotated, Final

import typer

from hpcplat.cli.session import print_json, service
from hpcplat.cli.tables import Column, shown

app = typer.Typer()

FIELDS: Final = (
    *("workspace", "user", "project", "jobs"),
    *("gpu_hours_asked", "gpu_hours", "cpu_hours", "price"),
)
USAGE: Final = (
    Column("WORKSPACE", lambda row: row["workspace"]),
    Column("USER", lambda row: row["user"]),
    Column("PROJECT", lambda row: row["project"], rank=1),
    Column("JOBS", lambda row: str(row["jobs"]), right=True),
    Column("ASKED", lambda row: f"{row['gpu_hours_asked']:.2f}", right=True, rank=2),
    Column("GPU-HOURS", lambda row: f"{row['gpu_hours']:.2f}", right=True),
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
    """Report what was used: your own; your members' if you own the workspace."""
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
