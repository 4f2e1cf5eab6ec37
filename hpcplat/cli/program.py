"""The Typer side of the program: commands loaded one by one, errors in one line."""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Mapping
from typing import Any

import typer
from typer.core import TyperGroup

from hpcplat.cli import faults
from hpcplat.cli.commands import Entry
from hpcplat.errors import ExitCode


def main(arguments: list[str], commands: Mapping[str, Entry]) -> int:
    """Run one command line and return its exit code."""
    try:
        status = _program(commands)(
            args=arguments, prog_name="hpcplat", standalone_mode=False
        )
    except Exception as error:
        # Click's classes live under different names in different releases of Typer:
        # its usage errors are known by their shape.
        if type(error).__name__ == "Abort":
            return faults.interrupted()
        if not hasattr(error, "format_message"):
            raise
        return _usage(error)
    return status if isinstance(status, int) else ExitCode.DONE


def _program(commands: Mapping[str, Entry]) -> Any:  # noqa: ANN401 - Click's, or Typer's own
    class Group(LazyGroup):
        entries = commands

    app = typer.Typer(
        cls=Group,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_nothing)
    return typer.main.get_command(app)


def _nothing() -> None:
    """Train on Slurm clusters: submit, watch, recover, prove the resume."""


class LazyGroup(TyperGroup):
    """A group whose commands are imported one by one, so that start-up stays quick."""

    entries: Mapping[str, Entry] = {}

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401
        """Return the names in the table's order."""
        return list(self.entries)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401
        """Return a stand-in with the help line: enough for the overview."""
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        stand_in = typer.Typer(name=cmd_name, help=entry.help, rich_markup_mode=None)
        return typer.main.get_group(stand_in)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401
        """Import the module of the command that is about to run (or complete)."""
        name, stand_in, rest = super().resolve_command(ctx, args)
        if name is None or stand_in is None:
            return name, stand_in, rest
        app = importlib.import_module(self.entries[name].module).app
        app.rich_markup_mode = None  # plain help: no boxes, and rich is not loaded
        app._add_completion = False  # the whole program's, not each command's
        command = typer.main.get_command(app)
        command.name = name
        return name, command, rest


def _usage(error: Any) -> int:  # noqa: ANN401 - Click's UsageError, whatever its name
    """Say in one line what is wrong, the nearest right word, and where to read more."""
    message: str = error.format_message()
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        print(message)
        return ExitCode.USAGE
    wrong = _WRONG.search(message)
    what = wrong[0] if wrong else " ".join(message.split()).rstrip(".")
    near = _nearest(wrong[1], context) if wrong and context else ""
    path = context.command_path if context else "hpcplat"
    return faults.usage(f"{what}.{near} See {path} --help.")


_WRONG = re.compile(r"No such (?:command|option):? '?([\w-]+)'?")


def _nearest(word: str, context: Any) -> str:  # noqa: ANN401 - Click's Context
    command = context.command
    if word.startswith("-"):
        known = [name for option in command.get_params(context) for name in option.opts]
    else:
        known = command.list_commands(context)
    near = difflib.get_close_matches(word, known, 1, 0.5)
    return f" Did you mean {near[0]}?" if near else ""
