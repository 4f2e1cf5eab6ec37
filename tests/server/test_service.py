"""The service's own thread lives, whatever a round or a wait meets."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from server.database import Database
from server.reconcile import Rhythm
from server.service import Service, Times
from tests.server.fakes import FakeSlurm

QUICK = Times(rhythm=Rhythm(fastest=0.01, slowest=0.01, idle=0.01))


@pytest.fixture
def service(sqlite: Database, slurm: FakeSlurm, tmp_path: Path) -> Service:
    return Service(sqlite, slurm, runs=str(tmp_path), times=QUICK)


@pytest.mark.parametrize("place", ["_look", "_wait"])
def test_the_loop_outlives_what_fails(
    service: Service, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    tried = threading.Semaphore(0)

    def fail(*_: object) -> None:
        tried.release()
        raise RecursionError

    monkeypatch.setattr(service, place, fail)
    service.start()
    try:
        assert all(tried.acquire(timeout=10) for _ in range(3))
    finally:
        service.stop()


def test_a_loop_that_fails_does_not_spin(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = list[float]()

    def fail(*_: object) -> None:
        rounds.append(time.monotonic())
        raise RecursionError

    monkeypatch.setattr(service, "_wait", fail)
    service.start()
    time.sleep(0.3)
    service.stop()
    assert 1 <= len(rounds) <= 31
