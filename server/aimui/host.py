"""The Aim UIs of this service: one for each workspace that somebody looks at."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Final

from hpcplat.errors import HpcplatError, NotFoundError
from server.aimui.process import AimUi

IDLE_SECONDS: Final = 1800.0  # each takes some 240 MB


class AimHost:
    """Starts a UI when it is asked for, and ends it when nobody looks any more.

    ``folder`` holds the repositories by workspace; ``base`` is the path of them all.
    """

    def __init__(self, folder: Path, base: str = "/aim") -> None:
        self._folder, self.base = folder, base
        self._lock = threading.Lock()
        self._uis: dict[str, AimUi] = {}
        self._starting: dict[str, threading.Thread] = {}
        self._problems: dict[str, HpcplatError] = {}

    def base_of(self, workspace: str) -> str:
        """Return the path of a workspace's UI."""
        return f"{self.base}/{workspace}"

    def socket(self, workspace: str) -> Path | None:
        """Return where the workspace's UI listens; None while it starts.

        Raises NotFoundError where nothing was collected yet, and what went wrong when
        the last start did not work.
        """
        if not (self._folder / workspace / ".aim" / "VERSION").is_file():
            raise NotFoundError(
                f"No run of workspace {workspace} was tracked yet.",
                "Look again some seconds after a job logged something.",
            )
        with self._lock:
            ui = self._uis.get(workspace)
            if ui is not None and ui.is_current:
                ui.used = time.monotonic()
                return ui.socket
            problem = self._problems.pop(workspace, None)
            if problem is not None:
                raise problem
            self._start(workspace)
            return None

    def _start(self, workspace: str) -> None:
        running = self._starting.get(workspace)
        if running is not None and running.is_alive():
            return
        thread = threading.Thread(target=self._started, args=(workspace,), daemon=True)
        self._starting[workspace] = thread
        thread.start()

    def _started(self, workspace: str) -> None:
        ui = self._uis.get(workspace)
        if ui is None:
            ui = AimUi(self._folder / workspace, self.base_of(workspace))
        try:
            ui.ensure()
        except HpcplatError as error:
            self._problems[workspace] = error
            return
        with self._lock:
            self._uis[workspace] = ui

    def end_idle(self) -> None:
        """End those that nobody asked for in half an hour."""
        with self._lock:
            for ui in self._uis.values():
                if time.monotonic() - ui.used > IDLE_SECONDS:
                    ui.stop()

    def close(self) -> None:
        """End all."""
        for thread in self._starting.values():
            thread.join()
        for ui in self._uis.values():
            ui.close()
