"""`python -I -m server.collector`: a process of its own, ended by SIGTERM."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
from pathlib import Path

from hpcplat.errors import ExitCode, HpcplatError
from hpcplat.settings import read_settings
from server.collector.catalogue import Catalogue, DatabaseCatalogue, FolderCatalogue
from server.collector.collector import Collector
from server.collector.mlflow_runs import MLFLOW, MlflowCatalogue, Several
from server.database import Database


def main(arguments: list[str]) -> int:
    """Collect until SIGTERM or SIGINT; return the exit code."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(format="%(asctime)s %(name)s %(levelname)s %(message)s")
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    parent = os.getppid()

    def is_over(seconds: float) -> bool:
        return ended.wait(seconds) or os.getppid() != parent

    try:
        Collector(_catalogue(options), options.aim).run(is_over)
    except HpcplatError as error:
        print(f"hpcplat collector: {error}", file=sys.stderr)  # noqa: T201 - a program
        return ExitCode.MENDABLE
    return ExitCode.DONE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="collector", description=__doc__)
    parser.add_argument(
        "--aim", type=Path, required=True, help="folder of repositories"
    )
    parser.add_argument(
        "--folders",
        type=Path,
        nargs="+",
        default=[],
        help="run folders, or folders of them; none: the jobs of the service's database",
    )
    return parser


def _catalogue(options: argparse.Namespace) -> Catalogue:
    if options.folders:
        return FolderCatalogue(options.folders)
    # By the environment: a database's password is not for the list of processes.
    settings = read_settings()
    jobs = DatabaseCatalogue(Database(settings.database))
    return Several(jobs, MlflowCatalogue(settings.data / MLFLOW))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
