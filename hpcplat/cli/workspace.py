"""`hpcplat workspace`: teams and their members."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

import typer

from hpcplat.cli.session import AsJson, print_json, service
from hpcplat.cli.tables import Column, shown

app = typer.Typer(help="Teams and their members.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="WORKSPACE")]
User = Annotated[str, typer.Argument(metavar="USER", help="A Unix user's name.")]

WORKSPACES: Final = (
    Column("WORKSPACE", lambda row: row["name"]),
    Column("ROLE", lambda row: row["role"] or "-"),
    Column("ACCOUNT", lambda row: row["account"], rank=1),
    Column("BELOW", lambda row: row["parent"], rank=2),
)
MEMBERS: Final = (
    Column("USER", lambda row: row["user"]),
    Column("ROLE", lambda row: row["role"]),
)
AUDIT: Final = (
    Column("AT", lambda row: row["at"][:19]),
    Column("WHO", lambda row: row["who"]),
    Column("FROM", lambda row: row["source"], rank=2),
    Column("WHAT", lambda row: _what(row)),
    Column("WORKSPACE", lambda row: row["workspace"], rank=1),
    Column("DETAIL", lambda row: row["detail"], shrinks=True),
)


class Role(StrEnum):
    """What a member may do."""

    VIEWER = "viewer"  # sees
    DEVELOPER = "developer"  # submits, and cancels own jobs
    OWNER = "owner"  # manages members, quotas and everybody's jobs


@app.command("ls")
def list_workspaces(*, as_json: AsJson = False) -> None:
    """List the workspaces that you are in."""
    with service() as client:
        found = client.workspaces()
    if as_json:
        print_json(found)
    elif found:
        print(shown(found, WORKSPACES))


@app.command()
def show(workspace: Name, *, as_json: AsJson = False) -> None:
    """Show a workspace: its account, members and quotas."""
    with service() as client:
        found = client.workspace(workspace)
    if as_json:
        print_json(found)
        return
    print(f"{found['name']}, Slurm account {found['account'] or 'of each user'}")
    if found["members"]:
        print(shown(found["members"], MEMBERS))
    for user, limits in sorted(found["quotas"].items()):
        words = ", ".join(f"{name} {value}" for name, value in sorted(limits.items()))
        print(f"quota of {user or 'all'}: {words}")


@app.command()
def make(
    workspace: Name,
    *,
    account: Annotated[
        str | None, typer.Option(help="The Slurm account; by default the name.")
    ] = None,
    below: Annotated[str | None, typer.Option(help="A workspace above it.")] = None,
) -> None:
    """Make a workspace; `hpcplat admin sync` makes its account in Slurm."""
    with service() as client:
        made = client.make_workspace(workspace, account, below)
    print(f"{made['name']} is made. See what Slurm lacks: hpcplat admin sync")


@app.command()
def close(workspace: Name) -> None:
    """Close a workspace that has no live jobs; its history stays."""
    with service() as client:
        client.close_workspace(workspace)
    print(f"{workspace} is closed.")


@app.command("add-member")
def add_member(
    workspace: Name,
    user: User,
    *,
    role: Annotated[Role, typer.Option(help="What they are to be.")] = Role.DEVELOPER,
) -> None:
    """Put somebody into a workspace, or give a member another role."""
    with service() as client:
        client.set_member(workspace, user, role)
    print(f"{user} is {role} in {workspace}.")


@app.command("remove-member")
def remove_member(workspace: Name, user: User) -> None:
    """Take somebody out; their running jobs run on."""
    with service() as client:
        client.remove_member(workspace, user)
    print(f"{user} is no longer in {workspace}.")


@app.command()
def audit(
    workspace: Annotated[str | None, typer.Argument(metavar="[WORKSPACE]")] = None,
    *,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 50,
    as_json: AsJson = False,
) -> None:
    """Show who did what, and who was refused; newest first."""
    with service() as client:
        filters = {"workspace": workspace} if workspace else {}
        found = client.audit(limit=limit, **filters)
    if as_json:
        print_json(found)
    elif found:
        print(shown(found, AUDIT))


def _what(row: object) -> str:
    assert isinstance(row, dict)
    return f"{row['action']} {row['target']}".strip()
