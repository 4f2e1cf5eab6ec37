"""`python -I -m hpcplat.tracking.observer`: watches one node of a job, beside its agent.

Every ten seconds it notes how busy the node is; it copies the values of TensorBoard
files that ranks write; on the first node it records what the attempt began with. It
may fail or be killed at any time: the training does not know of it.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from hpcplat.allocation import environment
from hpcplat.runfolder import RunFolder
from hpcplat.tracking import provenance
from hpcplat.tracking.gpu_tally import GpuTally
from hpcplat.tracking.machine import Machine, own_gpus
from hpcplat.tracking.mlflow_job import store_of_job
from hpcplat.tracking.mlflow_server import MlflowServer
from hpcplat.tracking.tensorboard_files import TensorBoardFollower
from hpcplat.tracking.tensorboard_search import EventFileSearch
from hpcplat.tracking.writer import MetricsWriter

logger = logging.getLogger(__name__)

MACHINE_SECONDS: Final = 10.0
FILES_SECONDS: Final = 1.0
NICE: Final = 10


class Observer:
    """One node of one attempt; ``parent`` is the process whose children are watched."""

    def __init__(self, run: RunFolder, attempt: int, node: str, parent: int) -> None:
        self._begun = _begun(run)
        self._machine = Machine(own_gpus(environment()))
        source = f"node-{node}"
        self._writer = MetricsWriter(run.root, attempt=attempt, source=source)
        self._search = EventFileSearch(parent)
        self._follower = TensorBoardFollower(run.root, attempt)
        self._tally = GpuTally()
        self._tally_file = run.attempt(attempt).gpu_tally(node)
        self._next = 0.0

    def look(self) -> None:
        """Copy what ranks wrote, and note the node's state when it is time."""
        self._search.note_processes()
        now = time.monotonic()
        if now >= self._next:
            self._next = now + MACHINE_SECONDS
            self._find()
            # The step of a node's metrics is the second of the job, over all attempts.
            step = max(int(time.time() - self._begun), 0)
            metrics = self._machine.read()
            self._writer.log(metrics, step)
            self._count(metrics)
        self._follower.look()

    def _count(self, metrics: Mapping[str, float]) -> None:
        self._tally = self._tally.and_of(metrics)
        if self._tally.samples:
            # The report of usage then has less to go by; metrics say so of a full disk.
            with suppress(OSError):
                self._tally.write(self._tally_file)

    def _find(self) -> None:
        for file in self._search.find():
            self._follower.see(file)

    def close(self) -> None:
        """Copy the rest, and end."""
        self._find()
        self._follower.close()
        self._writer.close()


def _begun(run: RunFolder) -> float:
    try:
        return run.spec.stat().st_mtime
    except FileNotFoundError:
        return run.root.stat().st_mtime


def main(arguments: list[str]) -> int:
    """Watch until SIGTERM, or until the agent is gone."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(format="hpcplat observer: %(message)s")
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the ranks' to answer
    os.nice(NICE)
    run, parent = RunFolder(options.run), os.getppid()
    if options.first:
        recorder = threading.Thread(
            target=_record, args=(run, options.attempt), daemon=True
        )
        recorder.start()
    observer = Observer(run, options.attempt, options.node, parent)
    mlflow = _mlflow(options)
    _watch(observer, parent, ended.wait)
    if mlflow:
        mlflow.close()
    return 0


def _mlflow(options: argparse.Namespace) -> MlflowServer | None:
    """Serve MLflow on the socket that the agent handed down, for the token beside it."""
    if not options.mlflow:
        return None
    listener, token = options.mlflow
    with os.fdopen(token) as words:
        store = store_of_job(options.run, options.attempt, options.node)
        return MlflowServer(socket.socket(fileno=listener), words.read(), store)


def _watch(observer: Observer, parent: int, wait: Callable[[float], bool]) -> None:
    while os.getppid() == parent and not wait(FILES_SECONDS):
        observer.look()
    observer.look()
    observer.close()


def _record(run: RunFolder, attempt: int) -> None:
    try:
        provenance.record(run, attempt, environment())
    except OSError as error:  # a full disk: the record is missing, and that is said
        logger.warning("The attempt's record could not be written: %s", error)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="observer", description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--attempt", type=int, required=True)
    parser.add_argument("--node", required=True)
    parser.add_argument(
        "--mlflow", type=int, nargs=2, metavar=("SOCKET", "TOKEN"), help="open files"
    )
    parser.add_argument("--first", action="store_true", help="record the attempt")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
