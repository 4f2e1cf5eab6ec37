"""Writes the attempt's beacon from a thread of its own: a file system may hang."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path
from typing import Final

from hpcplat import beacon

EVERY: Final = 1.0  # seconds


class BeaconWriter:
    """Writes the newest beacon that it was shown, once a second."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._newest: beacon.Beacon | None = None
        threading.Thread(target=self._write, name="beacon", daemon=True).start()

    def show(self, newest: beacon.Beacon) -> None:
        """Take this one for the next."""
        self._newest = newest

    def _write(self) -> None:
        while True:
            if self._newest is not None:
                # On a full disk there is none: the service asks Slurm then.
                with contextlib.suppress(OSError):
                    beacon.write(self._path, self._newest)
            time.sleep(EVERY)


def tell_cut_off(path: Path) -> None:
    """Let the service know at once that the coordinator is gone, from another node."""
    threading.Thread(target=_mark, args=(path,), name="beacon", daemon=True).start()


def _mark(path: Path) -> None:
    # Where it can't be written, the service sees in some seconds that none comes.
    with contextlib.suppress(OSError):
        beacon.mark_cut_off(path)


def last_words(path: Path, attempt: int) -> dict[str, float]:
    """Return what an earlier attempt's beacon said last: its step, and when."""
    try:
        found = beacon.parse(path.read_bytes())
    except OSError:
        return {}
    if found is None or found.attempt >= attempt or not found.step:
        return {}
    at = found.count / 1000
    return {"last_step": found.step, "last_at": at, "usual": found.usual}
