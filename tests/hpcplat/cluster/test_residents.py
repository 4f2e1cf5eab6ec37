"""The services kept warm for a cluster end with it, and no other process does."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hpcplat.cluster import residents

CONF = Path("/nowhere/etc/slurm.conf")
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
SLEEP = "import time; print(flush=True); time.sleep(600)"


@contextlib.contextmanager
def _started(
    conf: Path, *words: str, code: str = SLEEP
) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-c", code, *words],
        env={"SLURM_CONF": str(conf)},
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


def test_a_clusters_residents_end_and_nobody_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(residents, "GRACE", 0.5)
    with ExitStack() as stack:
        willing = stack.enter_context(_started(CONF, residents.MODULE))
        deaf = stack.enter_context(_started(CONF, residents.MODULE, code=DEAF + SLEEP))
        others = [
            stack.enter_context(_started(Path("/other.conf"), residents.MODULE)),
            stack.enter_context(_started(CONF, "a shell")),
        ]
        residents.end_residents(CONF)
        willing.wait(5)
        deaf.wait(5)
        assert [process.poll() for process in others] == [None, None]
