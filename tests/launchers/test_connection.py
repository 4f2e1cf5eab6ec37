from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from functools import partial

import pytest

from launchers.connection import Connection
from launchers.loop import Loop
from launchers.messages import Ended, Finish, Message, encode


@pytest.fixture
def loop() -> Iterator[Loop]:
    before = signal.getsignal(signal.SIGUSR1)
    made = Loop()
    yield made
    made.close()
    signal.signal(signal.SIGUSR1, before)


def _pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
    return client, accepted


class _Ear:
    """Hears one side of a connection, and stops the loop when it has enough."""

    def __init__(self, loop: Loop, enough: int) -> None:
        self._loop, self._enough = loop, enough
        self.heard: list[Message] = []
        self.closed = 0

    def message(self, _: Connection, message: Message) -> None:
        self.heard.append(message)
        if len(self.heard) == self._enough:
            self._loop.stop()

    def close(self, _: Connection) -> None:
        self.closed += 1
        self._loop.stop()


def test_many_large_messages_arrive_whole_and_in_order(loop: Loop) -> None:
    """More than the sockets' buffers hold: neither side may block."""
    one, other = _pair()
    ear = _Ear(loop, enough=200)
    Connection(loop, other, ear.message, ear.close)
    speaker = Connection(loop, one, ear.message, ear.close)
    sent = [Ended(0, n, 1, 0.0, tail=("x" * 60_000,)) for n in range(200)]
    for message in sent:
        speaker.send(message)
    loop.run()
    assert ear.heard == sent


def test_the_last_message_is_sent_before_the_close(loop: Loop) -> None:
    one, other = _pair()
    ear = _Ear(loop, enough=-1)
    Connection(loop, other, ear.message, ear.close)
    quiet = _Ear(loop, enough=-1)
    speaker = Connection(loop, one, quiet.message, lambda _: None)
    speaker.send(Finish(3))
    speaker.close_when_sent()
    loop.run()
    assert ear.heard == [Finish(3)]
    assert not speaker.open


@pytest.mark.parametrize("noise", [b"hello\n", b"x" * 1_100_000])
def test_noise_closes_the_connection(loop: Loop, noise: bytes) -> None:
    one, other = _pair()
    ear = _Ear(loop, enough=-1)
    Connection(loop, other, ear.message, ear.close)
    one.setblocking(False)
    rest = noise

    def push() -> None:
        nonlocal rest
        if rest:
            rest = rest[one.send(rest) :]

    loop.watch(one, push, events=2)
    loop.run()
    assert ear.closed == 1
    one.close()


def test_halves_of_a_line_are_put_together(loop: Loop) -> None:
    one, other = _pair()
    ear = _Ear(loop, enough=1)
    Connection(loop, other, ear.message, ear.close)
    line = encode(Finish(1))
    one.send(line[:5])
    loop.later(0.05, partial(one.sendall, line[5:]))
    loop.run()
    assert ear.heard == [Finish(1)]
    one.close()


def test_signals_and_timers_become_calls(loop: Loop) -> None:
    seen: list[str] = []
    loop.on_signal(signal.SIGUSR1, lambda: seen.append("signal"))
    loop.later(0.02, lambda: signal.raise_signal(signal.SIGUSR1))
    loop.later(0.01, lambda: seen.append("no")).cancelled = True
    loop.later(0.2, loop.stop)
    loop.run()
    assert seen == ["signal"]
