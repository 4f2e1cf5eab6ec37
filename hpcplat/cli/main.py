"""The `hpcplat` program: a command is loaded only when it is used."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Final

from hpcplat.cli import faults, streams
from hpcplat.cli.commands import COMMANDS, DROP_INS
from hpcplat.errors import ExitCode, HpcplatError

COMPLETES: Final = "_HPCPLAT_COMPLETE"  # set when a shell asks what may come next
_OVERVIEW: Final[tuple[list[str], ...]] = ([], ["-h"], ["--help"], ["help"])
_VERSION: Final = (["-V"], ["--version"])


def run() -> None:
    """Run the program and end the process with one of the documented exit codes."""
    streams.prepare()
    if sys.stdout is None:  # nothing is done, so that it can safely be done again
        sys.exit(faults.closed())
    status = main(sys.argv[1:])
    faults.drop_unwritten()
    sys.exit(status)


def main(arguments: list[str]) -> int:
    """Run one command line; the one place that maps errors to exit codes."""
    try:
        status = _dispatch(arguments)
        sys.stdout.flush()
    except HpcplatError as error:
        return faults.mendable(error)
    except KeyboardInterrupt:
        return faults.interrupted()
    except BrokenPipeError:  # `hpcplat jobs | head` has read enough
        return faults.unread()
    except OSError as error:  # a full disk is for people to mend; the rest is ours
        return faults.of_the_system(error)
    except Exception as error:  # noqa: BLE001 - the process's edge: ours, with a log
        return faults.unforeseen(error)
    return status


def _dispatch(arguments: list[str]) -> int:
    """Load no more than this command line needs: start-up is felt at every use."""
    if arguments in _OVERVIEW and COMPLETES not in os.environ:
        print(overview())
        return ExitCode.DONE
    if arguments in _VERSION:
        metadata = importlib.import_module("importlib.metadata")
        print(f"hpcplat {metadata.version('hpcplat')}")
        return ExitCode.DONE
    if arguments and arguments[0] in DROP_INS:
        module = importlib.import_module(DROP_INS[arguments[0]].module)
        return int(module.main(arguments[1:]))
    program = importlib.import_module("hpcplat.cli.program")
    return int(program.main(arguments, COMMANDS | DROP_INS))


def overview() -> str:
    """Return what `hpcplat --help` prints, without loading Typer."""
    groups: dict[str, list[str]] = {}
    for name, entry in (COMMANDS | DROP_INS).items():
        groups.setdefault(entry.group, []).append(f"  {name:<10} {entry.help}")
    parts = [
        "Usage: hpcplat COMMAND [ARGUMENTS] …",
        "Train on Slurm clusters: submit, watch, recover, prove the resume.",
    ]
    parts += ["\n".join([f"{name}:", *lines]) for name, lines in groups.items()]
    parts.append(
        "`hpcplat COMMAND --help` says more. `hpcplat --version` names the release,\n"
        "`hpcplat --install-completion` makes the shell complete commands.\n"
        "Exit codes: 0 done, 1 yours to mend, 2 wrong usage, 3 a fault of ours."
    )
    return "\n\n".join(parts)


if __name__ == "__main__":
    run()
