from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcplat.errors import InvalidError
from launchers.messages import (
    Beacon,
    Ended,
    Finish,
    Halt,
    Inventory,
    Join,
    Look,
    Message,
    PassSignal,
    Stacks,
    Start,
    Stop,
    decode,
    encode,
)


@pytest.mark.parametrize(
    "message",
    [
        Join("w", "n1", 0, "h", "v", 1, "é"),
        Start(0, (0, 1), 4, 0, "h", 1),
        Ended(0, 1, 7, 1.5, stopped=True, tail=("a\nb", "\ufffd")),
        PassSignal("SIGUSR2"),
        Stop(1.5),
        Finish(3),
        Halt(2),
        Look(2),
        Stacks(1, (0,), ("in f",)),
        Inventory(1, (0, 1), (7, 7)),
        Beacon(1, (0, 1), (7, 7), (1, 1), (0.25, 0.5), ("S", "T")),
    ],
)
def test_messages_are_one_line_and_read_back(message: Message) -> None:
    line = encode(message)
    assert line.count(b"\n") == 1
    assert decode(line) == message


@given(st.binary(max_size=100))
def test_what_is_no_message_is_refused(line: bytes) -> None:
    with pytest.raises(InvalidError):
        decode(line)


@pytest.mark.parametrize(
    "line",
    [b"{}", b'{"kind":"No"}', b'{"kind":"Finish"}', b'{"kind":"Finish","x":1}', b"[1]"],
)
def test_a_message_of_another_release_is_refused(line: bytes) -> None:
    with pytest.raises(InvalidError):
        decode(line)
