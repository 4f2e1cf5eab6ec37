"""Tracking as a whole beside a service: the collector's process and the Aim UIs."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from hpcplat.errors import ExitCode
from server.aimui.host import AimHost
from server.aimui.process import end_group, last_words, start

logger = logging.getLogger("hpcplat.tracking")

LOOKS_EVERY: Final = 2.0
AGAIN_AFTER: Final = (1.0, 5.0, 30.0, 60.0)  # seconds, by how often it died in a row


class Tracking:
    """Keeps a collector running, and ends what nobody uses.

    ``folder`` holds the repositories by workspace. ``words`` tell the collector where
    runs are (none: the service's database); ``environ`` is its environment.
    """

    def __init__(
        self, folder: Path, environ: Mapping[str, str], words: Sequence[str] = ()
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.host = AimHost(folder)
        self._folder, self._environ, self._words = folder, dict(environ), tuple(words)
        self._log = folder / "collector.log"
        self._ended = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._keep, name="tracking", daemon=True)

    def start(self) -> None:
        """Start the collector, and look after it from a thread."""
        self._thread.start()

    def close(self) -> None:
        """End the collector, which writes what it has, and the UIs."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._process is not None:
            end_group(self._process)
        self.host.close()

    def _keep(self) -> None:
        deaths = 0
        while not self._ended.is_set():
            if self._process is None:
                self._process = self._started()
            if self._ended.wait(LOOKS_EVERY):
                return
            self.host.end_idle()
            status = self._process.poll()
            if status is None:
                deaths = 0
                continue
            self._process = None
            self._say(status)
            self._ended.wait(AGAIN_AFTER[min(deaths, len(AGAIN_AFTER) - 1)])
            deaths += 1

    def _started(self) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-I", "-m", "server.collector", "--aim", self._folder]
        words = [*map(str, argv), *self._words]
        return start(words, self._log, self._folder, self._environ)

    def _say(self, status: int) -> None:
        level = logging.INFO if status == ExitCode.MENDABLE else logging.ERROR
        words = last_words(self._log)
        logger.log(level, "the collector ended (%s): %s", status, words)
