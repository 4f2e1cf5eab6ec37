"""`python -I -m server.collector`: a process of its own, ended by SIGTERM."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
from pathlib import Path

from hpcplat.errors import ExitCode, HpcplatError
from server.collector.catalogue import Catalogue, DatabaseCatalogue, FolderCatalogue
from server.collector.collector import Collector
from server.database import Database


def main(arguments: list[str]) -> int:
    """Collect until SIGTERM or SIGINT; return the exit code."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(format="%(asctime)s %(name)s %(levelname)s %(message)s")
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    try:
        Collector(_catalogue(options), options.aim).run(ended.wait)
    except HpcplatError as error:
        print(f"hpcplat collector: {error}", file=sys.stderr)  # noqa: T201 - a program
        return ExitCode.MENDABLE
    return ExitCode.DONE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="collector", description=__doc__)
    parser.add_argument(
        "--aim", type=Path, required=True, help="folder of repositories"
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--database", help="the service's database, as a URL")
    source.add_argument(
        "--folders", type=Path, nargs="+", help="run folders, or theirs"
    )
    return parser


def _catalogue(options: argparse.Namespace) -> Catalogue:
    if options.database:
        return DatabaseCatalogue(Database(options.database))
    return FolderCatalogue(options.folders)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
