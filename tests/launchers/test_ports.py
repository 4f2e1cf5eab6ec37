from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcplat.errors import UnavailableError
from launchers import ports


@given(st.integers(1, 2**32 - 1))
def test_a_jobs_ports_are_in_range_and_differ(job_id: int) -> None:
    found = list(ports.candidates(job_id))
    assert len(set(found)) == ports.TRIES
    assert all(ports.LOWEST <= port < ports.HIGHEST for port in found)


def test_neighbouring_jobs_try_different_ports_first() -> None:
    first = {next(ports.candidates(job_id)) for job_id in range(1000, 11_000)}
    assert len(first) > 9_000


def test_a_port_that_is_taken_is_passed_over() -> None:
    job_id = 4242
    wanted = ports.free_port(job_id)
    with socket.create_server(("", wanted)):
        other = ports.free_port(job_id)
    assert other != wanted
    assert other in ports.candidates(job_id)


def test_no_free_port_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_is_free", lambda port: False)
    with pytest.raises(UnavailableError, match="None of 64 ports"):
        ports.free_port(1)


def test_own_addresses_begin_with_the_name() -> None:
    assert ports.own_addresses()[0] == socket.gethostname()
