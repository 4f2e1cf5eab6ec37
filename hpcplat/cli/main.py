"""The `hpcplat` program: one table of commands, each loaded only when it is used."""

from __future__ import annotations

import importlib
import logging
import sys
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup

from hpcplat.errors import ExitCode, HpcplatError

logger = logging.getLogger("hpcplat")


class Entry(NamedTuple):
    """Where a command lives (a module with a Typer ``app``), and its help line."""

    module: str
    help: str


COMMANDS: dict[str, Entry] = {
    "cluster": Entry("hpcplat.cli.cluster", "A real Slurm on this machine."),
}


class LazyGroup(TyperGroup):
    """A group whose commands are imported one by one, so that start-up stays quick.

    Click's own types are not named here: Typer carries them under different module
    names in different releases.
    """

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401
        """Return the names in the table's order."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401
        """Return a stand-in with the help line: enough for the overview."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        return typer.main.get_group(typer.Typer(name=cmd_name, help=entry.help))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401
        """Import the module of the command that is about to run (or complete)."""
        name, stand_in, rest = super().resolve_command(ctx, args)
        if name is None or stand_in is None:
            return name, stand_in, rest
        command = typer.main.get_command(
            importlib.import_module(COMMANDS[name].module).app
        )
        command.name = name
        return name, command, rest


app = typer.Typer(
    cls=LazyGroup,
    help="Train on Slurm clusters: submit, watch, recover, prove the resume.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _main() -> None:
    """Train on Slurm clusters: submit, watch, recover, prove the resume."""


def run(arguments: list[str] | None = None) -> None:
    """Run the program and end the process with one of the documented exit codes."""
    sys.exit(main(sys.argv[1:] if arguments is None else arguments))


def main(arguments: list[str]) -> int:
    """Run one command line; the one place that maps errors to exit codes."""
    try:
        app(arguments, standalone_mode=True, prog_name="hpcplat")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else ExitCode.DONE
    except HpcplatError as error:
        print(f"hpcplat: {error}", file=sys.stderr)
        return ExitCode.MENDABLE
    except KeyboardInterrupt:
        print("hpcplat: interrupted", file=sys.stderr)
        return ExitCode.MENDABLE
    except Exception:  # the process's edge: what nobody foresaw is our fault
        logger.exception("hpcplat failed; this is a fault of hpcplat, please report it")
        return ExitCode.BUG
    return ExitCode.DONE
