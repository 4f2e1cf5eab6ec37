"""The `hpcplat` program: one table of commands, each loaded only when it is used."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Final, NamedTuple

from hpcplat.cli import faults
from hpcplat.errors import ExitCode, HpcplatError


class Entry(NamedTuple):
    """Where a command lives (a module with a Typer ``app``), and its help line."""

    module: str
    help: str
    group: str = "More"


COMMANDS: dict[str, Entry] = {
    "submit": Entry("hpcplat.cli.submit", "Submit a job from a spec file.", "Jobs"),
    "run": Entry("hpcplat.cli.run", "Run a command as a job.", "Jobs"),
    "jobs": Entry("hpcplat.cli.jobs", "List jobs.", "Jobs"),
    "show": Entry("hpcplat.cli.show", "Show a job and its attempts.", "Jobs"),
    "logs": Entry("hpcplat.cli.logs", "Print what a job prints; -f follows.", "Jobs"),
    "events": Entry("hpcplat.cli.events", "Print what happened to a job.", "Jobs"),
    "wait": Entry("hpcplat.cli.wait", "Wait until jobs are over.", "Jobs"),
    "cancel": Entry("hpcplat.cli.cancel", "Cancel jobs.", "Jobs"),
    "requeue": Entry("hpcplat.cli.requeue", "Run jobs once more.", "Jobs"),
    "data": Entry("hpcplat.cli.data", "Datasets: versions in Zarr shards.", "Data"),
    "layout": Entry("hpcplat.cli.layout", "Layouts of a model, with memory.", "Jobs"),
    "ckpt": Entry("hpcplat.cli.ckpt", "Checkpoints: list, verify, export.", "Runs"),
    "import": Entry(
        "hpcplat.cli.importing", "Turn an sbatch script into a spec.", "Jobs"
    ),
    "runs": Entry("hpcplat.cli.runs", "What made each run, what differs.", "Runs"),
    "spec": Entry("hpcplat.cli.spec", "Job specs: schema, templates, checks.", "Jobs"),
    "plot": Entry("hpcplat.cli.plot", "Draw what a job logged.", "Runs"),
    "ui": Entry("hpcplat.cli.ui", "Open the Aim UI.", "Runs"),
    "serve": Entry("hpcplat.cli.serve", "Run the service.", "Site"),
    "db": Entry("hpcplat.cli.db", "The service's database.", "Site"),
    "top": Entry("hpcplat.cli.top", "Queue, GPUs and progress, live.", "Jobs"),
    "login": Entry("hpcplat.cli.login", "Use a site's service.", "Site"),
    "logout": Entry("hpcplat.cli.logout", "Forget it again.", "Site"),
    "doctor": Entry(
        "hpcplat.cli.doctor", "Check the site and your place in it.", "Site"
    ),
    "nodes": Entry("hpcplat.cli.nodes", "Show GPUs and who uses them.", "Site"),
    "quota": Entry("hpcplat.cli.quota", "What you may have, and its use.", "People"),
    "usage": Entry("hpcplat.cli.usage", "GPU-hours by workspace, member.", "People"),
    "admin": Entry("hpcplat.cli.admin", "Sync workspaces with Slurm.", "Site"),
    "workspace": Entry("hpcplat.cli.workspace", "Teams and their members.", "People"),
    "demo": Entry("hpcplat.cli.demo", "Start a Slurm here and run a GPU job on it."),
    "cluster": Entry("hpcplat.cli.cluster", "A real Slurm on this machine."),
}

# Their words are another program's to parse: a module with ``main(words) -> status``.
DROP_INS: Final = {
    "sbatch": Entry("hpcplat.cli.sbatch", "sbatch itself, tracked.", "Jobs"),
}

COMPLETES: Final = "_HPCPLAT_COMPLETE"  # set when a shell asks what may come next
_OVERVIEW: Final[tuple[list[str], ...]] = ([], ["-h"], ["--help"], ["help"])
_VERSION: Final = (["-V"], ["--version"])


def run() -> None:
    """Run the program and end the process with one of the documented exit codes."""
    sys.exit(main(sys.argv[1:]))


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
