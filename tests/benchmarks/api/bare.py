"""The least that a service can do which submits: a durable row for each job, then sbatch.

    python bare.py SOCKET DATABASE

No look at the request, no admission, no run folder, no events, no look at Slurm: what
FastAPI, SQLite and sbatch cost by themselves on the machine where hpcplat is measured.
"""

from __future__ import annotations

import queue
import sqlite3
import subprocess
import sys
import threading
from typing import Any, Final

import uvicorn
from fastapi import FastAPI

WORKERS: Final = 2  # as many as hpcplat has
RAW: Final = "#!/bin/sh\n#SBATCH --begin=now+7days\n#SBATCH --time=1 --mem=10M\ntrue\n"
TABLE: Final = (
    "CREATE TABLE job (id INTEGER PRIMARY KEY, spec TEXT NOT NULL, slurm INTEGER)"
)


class Bare:
    """A table of jobs, and threads that run sbatch for each row."""

    def __init__(self, database: str) -> None:
        self._lock = threading.Lock()
        self._rows = sqlite3.connect(
            database, isolation_level=None, check_same_thread=False
        )
        self._rows.execute("PRAGMA journal_mode = WAL").close()
        self._rows.execute("PRAGMA synchronous = FULL").close()
        self._rows.execute(TABLE).close()
        self._queue: queue.SimpleQueue[int] = queue.SimpleQueue()
        for _ in range(WORKERS):
            threading.Thread(target=self._work, daemon=True).start()

    def accept(self, spec: str) -> int:
        """Write a job down, for good, and have it submitted."""
        with self._lock:
            done = self._rows.execute("INSERT INTO job (spec) VALUES (?)", (spec,))
        row = done.lastrowid or 0
        self._queue.put(row)
        return row

    def left(self) -> int:
        """Return how many jobs have no number of Slurm's yet."""
        with self._lock:
            asked = self._rows.execute("SELECT count(*) FROM job WHERE slurm IS NULL")
            return int(asked.fetchone()[0])

    def _work(self) -> None:
        while True:
            row = self._queue.get()
            done = subprocess.run(
                ["sbatch", "--parsable"],
                input=RAW.encode(),
                capture_output=True,
                check=True,
            )
            with self._lock:
                words = (int(done.stdout), row)
                self._rows.execute("UPDATE job SET slurm = ? WHERE id = ?", words)


def main(path: str, database: str) -> None:
    bare = Bare(database)
    app = FastAPI()

    def submit(asked: dict[str, Any]) -> dict[str, int]:
        return {"id": bare.accept(str(asked))}

    def left() -> dict[str, int]:
        return {"left": bare.left()}

    app.post("/jobs")(submit)
    app.get("/left")(left)
    uvicorn.run(app, uds=path, log_level="warning", access_log=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
