"""`hpcplat quota`: what you may have, what is used of it, and by whom."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Final

import typer

from hpcplat.cli.session import AsJson, print_json, service
from hpcplat.cli.tables import Column, shown
from hpcplat.errors import InvalidError
from hpcplat.quantities import format_duration

app = typer.Typer(help="What you may have, and what is used of it.")

WIDTH: Final = 20  # characters of a bar
MINUTES: Final = "gres/gpu minutes"

LIMITS: Final = (
    Column("LIMIT", lambda row: f"{row['name']} {_what(row)}"),
    Column("OF", lambda row: row["owner"], shrinks=True),
    Column("USED", lambda row: bar(row["used"], row["allowed"])),
    Column("", lambda row: _fraction_of(row), right=True),
)
USERS: Final = (
    Column("USER", lambda row: row["user"]),
    Column("GPUS", lambda row: str(row["gpus"]), right=True),
    Column("RUNNING", lambda row: str(row["running"]), right=True),
    Column("WAITING", lambda row: str(row["waiting"]), right=True),
    Column("FAIR SHARE", lambda row: _fraction(row["fair_share"]), right=True),
)


@app.callback(invoke_without_command=True)
def quota(
    context: typer.Context,
    *,
    workspace: Annotated[
        str | None, typer.Option("--workspace", "-w", help="One workspace alone.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Draw each limit of your workspaces: used, allowed, and who has it."""
    if context.invoked_subcommand is not None:
        return
    with service() as client:
        found = client.quotas(workspace)["standings"]
    if as_json:
        print_json(found)
        return
    print("\n\n".join(_drawn(each) for each in found) or "Slurm sets you no limits.")


@app.command("set")
def set_quota(
    workspace: Annotated[str, typer.Argument(metavar="WORKSPACE")],
    limits: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=VALUE…",
            help="gpus, gpus:TYPE, gpu_hours, nodes, running_jobs, submitted_jobs,"
            " longest_time, share. What is not named has no limit. qos=A,B: those that"
            " jobs may choose, the first by default; left as it is if not named.",
        ),
    ],
    *,
    user: Annotated[str, typer.Option(help="One member, not the whole.")] = "",
) -> None:
    """Set what a workspace, or one member, may have; Slurm enforces it."""
    asked = dict(_pair(text) for text in limits)
    with service() as client:
        kept = client.set_quota(workspace, asked, user)
    words = ", ".join(f"{name} {value}" for name, value in kept["limits"].items())
    print(f"{user or 'All'} of {workspace} may have: {words}.")


def bar(used: int, allowed: int) -> str:
    """Return a bar of fixed width; full at the limit and above it."""
    filled = WIDTH if not allowed else min(round(WIDTH * used / allowed), WIDTH)
    return "█" * filled + "░" * (WIDTH - filled)


def _what(row: Mapping[str, Any]) -> str:
    return "GPU-hours" if row["what"] == MINUTES else str(row["what"])


def _fraction_of(row: Mapping[str, Any]) -> str:
    """Return what is used of what is allowed; minutes as hours, seconds as time."""
    if row["what"] == MINUTES:
        return f"{row['used'] / 60:.1f}/{row['allowed'] / 60:g}"
    if row["what"] == "time":  # of each job: none is used up
        return format_duration(timedelta(seconds=row["allowed"]))
    return f"{row['used']}/{row['allowed']}"


def _drawn(standing: Mapping[str, Any]) -> str:
    head = f"{standing['workspace']} (account {standing['account']})"
    share, usage = standing["norm_shares"], standing["effective_usage"]
    if share is not None and usage is not None:
        head += f": share {share:.0%}, used {usage:.0%} of what everybody used"
    parts = [head]
    if standing["limits"]:
        parts.append(shown(standing["limits"], LIMITS))
    if standing["users"]:
        parts.append(shown(standing["users"], USERS))
    return "\n".join(parts)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InvalidError(f"{text!r} is no quota.", "Write NAME=VALUE, as gpus=8.")
    return name, value


def _fraction(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
