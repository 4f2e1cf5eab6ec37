"""Ports that are free, held, and still there for the daemons."""

from __future__ import annotations

import socket

import pytest

from hpcplat.cluster import ports
from hpcplat.cluster.ports import Ports, answers, hold_block
from hpcplat.errors import UnavailableError


def test_every_port_of_a_full_cluster_lies_in_its_block() -> None:
    block = Ports(20000)
    numbers = [block.slurmctld, block.slurmdbd, block.slurmrestd]
    numbers += [block.slurmd(number) for number in range(1, 101)]
    assert len(set(numbers)) == len(numbers)
    assert max(numbers) < 20000 + ports.BLOCK


def test_two_holders_get_different_blocks() -> None:
    with hold_block() as one, hold_block() as other:
        assert abs(one.base - other.base) >= ports.BLOCK


def test_a_daemon_can_listen_on_a_held_port() -> None:
    with hold_block() as block, socket.socket() as daemon:
        assert not answers(block.slurmctld)
        daemon.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        daemon.bind(("127.0.0.1", block.slurmctld))
        daemon.listen()
        assert answers(block.slurmctld)


def test_a_block_with_a_used_port_is_left_alone() -> None:
    with hold_block() as found:
        pass
    with socket.socket() as other:
        other.bind(("127.0.0.1", found.base + ports.BLOCK - 1))
        other.listen()
        with hold_block() as block:
            assert block != found


def test_no_free_block_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "FIRST", 20000)
    monkeypatch.setattr(ports, "LAST", 20000 + ports.BLOCK - 1)
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", 20003))
        other.listen()
        with pytest.raises(UnavailableError, match="neighbouring ports"), hold_block():
            pass
