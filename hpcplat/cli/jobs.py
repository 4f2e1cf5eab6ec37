"""`hpcplat jobs`: the list, newest first."""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

from hpcplat.cli.session import AsJson, print_json, service
from hpcplat.cli.tables import Column, Row, is_terminal, shown
from hpcplat.cli.times import age, clock, moment
from hpcplat.errors import InvalidError

app = typer.Typer()

STATES: Final = [
    "QUEUED",
    "SUBMITTING",
    "PENDING",
    "RUNNING",
    "SUSPENDED",
    "COMPLETED",
    "FAILED",
    "CANCELLED",
]


SHORTEST_ID: Final = 12  # of 16 characters: the time, and three by chance


def with_short_ids(rows: Sequence[Row]) -> list[Row]:
    """Return rows whose ``short`` is a beginning of the id that no other row has."""
    length = SHORTEST_ID
    ids = [str(row["id"]) for row in rows]
    while length < len(max(ids, key=len, default="")) and len(
        {job_id[:length] for job_id in ids}
    ) < len(ids):
        length += 1
    return [{**row, "short": str(row["id"])[:length]} for row in rows]


def elapsed(row: Row) -> str:
    """Return how long a job ran, or has been running."""
    started = moment(row["started_at"])
    if started is None:
        return ""
    return clock((moment(row["ended_at"]) or datetime.now(UTC)) - started)


def _size(row: Row) -> str:
    gpus = f"/{row['gpus']}" if row["gpus"] else ""
    return f"{row['nodes']}{gpus}"


def _age(row: Row) -> str:
    """Return how old a job is; programs get the moment itself."""
    created = str(row["created_at"])
    return age(moment(created)) if is_terminal() else created


def _slurm(row: Row) -> str:
    return str(row["slurm_job_id"] or "")


COLUMNS: Final = (
    Column("ID", lambda row: row["short"] if is_terminal() else row["id"]),
    Column("NAME", lambda row: row["name"], shrinks=True),
    Column("STATE", lambda row: row["state"], coloured=True),
    Column("SLURM", _slurm, rank=3, right=True),
    Column("USER", lambda row: row["user"], rank=5),
    Column("NODES/GPUS", _size, rank=4, right=True),
    Column("TIME", elapsed, rank=2, right=True),
    Column("AGE", _age, rank=1, right=True),
    Column("REASON", lambda row: row["reason"], rank=6, shrinks=True),
)


@app.command()
def jobs(  # noqa: PLR0913 - each is an option of the command line
    state: Annotated[
        list[str] | None, typer.Option(help="Only in this state (also several).")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Only of this name.")] = None,
    workspace: Annotated[str | None, typer.Option(help="Only of this team.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="At most.")] = 50,
    *,
    mine: Annotated[bool, typer.Option("--mine", help="Only your own.")] = False,
    live: Annotated[
        bool, typer.Option("--live", help="Only those that are not over.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List jobs, newest first.

    On a terminal a table; otherwise one line a job, cells between tabs.
    """
    states = [_state(text) for text in state or ()] or (STATES[:5] if live else None)
    filters: dict[str, Any] = {
        "state": states,
        "name": name,
        "workspace": workspace,
        "user": getpass.getuser() if mine else None,
    }
    given = {key: value for key, value in filters.items() if value is not None}
    with service() as client:
        found = client.jobs(limit=limit, **given)
    if as_json:
        print_json(found)
    elif found:
        print(shown(with_short_ids(found), COLUMNS))


def _state(text: str) -> str:
    upper = text.upper()
    if upper not in STATES:
        raise InvalidError(f"{text} is no state.", f"Use one of {', '.join(STATES)}.")
    return upper
