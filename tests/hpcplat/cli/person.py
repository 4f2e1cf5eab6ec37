"""Somebody at a terminal, for tests of commands."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from hpcplat.cluster import Cluster

HPCPLAT = Path(sys.executable).with_name("hpcplat")


@dataclass
class Person:
    """Somebody at a terminal: runs commands with a data folder of their own."""

    cluster: Cluster
    folder: Path
    env: dict[str, str] = field(default_factory=dict)

    def run(
        self, *words: str, status: int | None = 0, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(HPCPLAT), *words],
            env=self.env,
            cwd=self.folder,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert status is None or done.returncode == status, (words, done)
        return done

    def out(self, *words: str, status: int | None = 0) -> str:
        return self.run(*words, status=status).stdout.strip()


STOP = """
from hpcplat.cli.resident import stop
from hpcplat.settings import read_settings
stop(read_settings())
"""


def stop_resident(person: Person) -> None:
    """End the service that keeps itself warm for this person."""
    subprocess.run([sys.executable, "-c", STOP], env=person.env, check=True)
