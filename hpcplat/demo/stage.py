"""The demo's stage: its folder, its environment, and the commands run on it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hpcplat.errors import HpcplatError, UnavailableError
from hpcplat.processes import Completed, end_group, run
from hpcplat.settings import DATA, URL, own_environment

# Seconds that one command may take; a cluster's start is the longest.
PATIENCE: Final = 300.0
SERVICE_START: Final = 60.0
SERVICE_END: Final = 10.0
PROGRAM: Final = (sys.executable, "-I", "-m", "hpcplat.cli.main")


@dataclass(frozen=True, slots=True)
class StagePaths:
    """Every name in the demo's folder."""

    root: Path

    @property
    def data(self) -> Path:
        """Datasets, run folders, the service's database: what HPCPLAT_DATA names."""
        return self.root / "data"

    @property
    def corpus(self) -> Path:
        """The text that is trained on."""
        return self.root / "corpus"

    @property
    def socket(self) -> Path:
        """The service listens here."""
        return self.root / "service.sock"

    @property
    def service_log(self) -> Path:
        """What the service printed."""
        return self.root / "service.log"

    @property
    def service_process(self) -> Path:
        """The number of the service's process."""
        return self.root / "service.pid"

    @property
    def spec(self) -> Path:
        """What is asked for."""
        return self.root / "gpt.yaml"

    @property
    def picture(self) -> Path:
        """The loss curve."""
        return self.root / "loss.png"


class Stage:
    """Runs `hpcplat …` as a person would, with the demo's folder for its data."""

    def __init__(self, root: Path) -> None:
        self.paths = StagePaths(root)
        self._environ = {**own_environment(), DATA: str(self.paths.data)}
        self._environ.pop(URL, None)

    def open(self, variables: Mapping[str, str]) -> None:
        """Make the folder, and export variables for the commands that follow."""
        self.paths.root.mkdir(exist_ok=True)
        self._environ.update(variables)

    def exports(self) -> dict[str, str]:
        """Return the variables that make a shell's commands play on this stage."""
        return {DATA: str(self.paths.data), URL: f"unix:{self.paths.socket}"}

    def hpcplat(self, *words: str | Path, timeout: float = PATIENCE) -> Completed:
        """Run one command; HpcplatError with its own words when it fails."""
        done = self.try_hpcplat(*words, timeout=timeout)
        if not done.ok:
            said = done.complaint().removeprefix("hpcplat: ")
            raise HpcplatError(f"`hpcplat {words[0]}` failed: {said}")
        return done

    def try_hpcplat(self, *words: str | Path, timeout: float = PATIENCE) -> Completed:
        """Run one command, whatever it comes to."""
        argv = [*PROGRAM, *map(str, words)]
        return run(argv, timeout=timeout, env=self._environ, cwd=self.paths.root)

    def answer(self, *words: str | Path) -> Any:  # noqa: ANN401 - whatever it says
        """Run one command with --json and return what it says."""
        return json.loads(self.hpcplat(*words, "--json").stdout)

    def start_service(self) -> None:
        """Start `hpcplat serve` and point the commands that follow at it."""
        self.end_service()
        with self.paths.service_log.open("wb") as log:
            process = subprocess.Popen(
                [*PROGRAM, "serve", "--socket", str(self.paths.socket)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environ,
                cwd=self.paths.root,
                start_new_session=True,
            )
        self.paths.service_process.write_text(f"{process.pid}\n")
        self._environ.update(self.exports())
        self._await_service(process)

    def _await_service(self, process: subprocess.Popen[bytes]) -> None:
        end = time.monotonic() + SERVICE_START
        while time.monotonic() < end and process.poll() is None:
            if self.paths.socket.exists() and self.try_hpcplat("jobs", "--json").ok:
                return
            time.sleep(0.2)
        lines = self.paths.service_log.read_text(errors="replace").splitlines()
        raise UnavailableError(
            f"The service did not start: {lines[-1] if lines else 'it said nothing'}.",
            f"See {self.paths.service_log}.",
        )

    def end_service(self) -> None:
        """End the service, with all that it started."""
        try:
            process = int(self.paths.service_process.read_text())
        except (FileNotFoundError, ValueError):
            return
        if _is_service(process):
            end_group(process, grace=SERVICE_END)
        self.paths.service_process.unlink(missing_ok=True)


def _is_service(process: int) -> bool:
    """Whether that number is (still) the service's and no stranger's."""
    try:
        words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"hpcplat.cli.main" in words and b"serve" in words
