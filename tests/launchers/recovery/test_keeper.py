"""Two keepers as two nodes have them, each a process, and a rank between them."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import psutil
import pytest
import torch

from hpcplat.checkpoints.shard import Shard, whole
from launchers.loop import Loop
from launchers.memory import CopyLostError, MemoryCopies
from launchers.messages import Start
from launchers.recovery.fingerprint import fingerprint
from launchers.recovery.keeperprocess import KeeperProcess

WORD = "the word"


def until(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.005)


@dataclass
class Node:
    """A node's keeper, and the loop of its agent."""

    loop: Loop = field(default_factory=Loop)

    def __post_init__(self) -> None:
        self.keeper = KeeperProcess(self.loop, WORD)

    @property
    def process(self) -> psutil.Process:
        assert self.keeper.process is not None
        return psutil.Process(self.keeper.process.pid)

    @property
    def place(self) -> tuple[str, int]:
        return "127.0.0.1", self.keeper.port

    def start(self, generation: int, resume: int = -1, **fields: object) -> None:
        order = Start(generation, (0,), 1, 0, "127.0.0.1", 1, resume=resume, **fields)  # type: ignore[arg-type]
        self.keeper.start(order)

    def holds(self) -> list[tuple[int, int]]:
        told: list[list[tuple[int, int]]] = []

        def take(held: object) -> None:
            told.append(list(held))  # type: ignore[call-overload]
            self.loop.stop()

        self.keeper.listing(take)
        while not told:  # for one that is dead it is answered at once
            self.loop._running = True
            self.loop.run()
        return told[0]

    def close(self) -> None:
        self.keeper.close()
        self.loop.close()


Rank = Callable[..., MemoryCopies]


@pytest.fixture
def nodes() -> Iterator[tuple[Node, Node]]:
    before = signal.getsignal(signal.SIGCHLD)
    both = (Node(), Node())
    yield both
    for node in both:
        node.close()
    signal.signal(signal.SIGCHLD, before)


def shards(value: float) -> list[Shard]:
    return [whole(f"t{n}", torch.full((100_000,), float(value + n))) for n in range(3)]


@pytest.fixture
def rank() -> Iterator[Rank]:
    with contextlib.ExitStack() as stack:

        def begin(node: Node, generation: int = 0) -> MemoryCopies:
            copies = MemoryCopies(node.keeper.name, 0, 1, generation)
            stack.callback(copies.close)
            copies.hello()
            copies.prepare(shards(0))
            return copies

        yield begin


def taken(copies: MemoryCopies, step: int) -> MemoryCopies:
    copies.take(step, {"samples": 8 * step}, shards(step))
    until(lambda: not copies.busy, f"the copy of step {step}")
    return copies


def test_a_copy_is_on_both_nodes_and_comes_back_on_a_third_start(
    nodes: tuple[Node, Node], rank: Rank
) -> None:
    here, there = nodes
    here.start(0, buddy=there.place)
    there.start(0)
    copies = rank(here)
    for step in (1, 2, 3):
        taken(copies, step)
    assert here.holds() == [(0, 2), (0, 3)]
    assert there.holds()[-1] == (0, 3)
    here.process.kill()  # the node is gone: the rank starts elsewhere
    there.start(1, resume=3)
    found = rank(there, generation=1).find()
    live = shards(0)
    found.load(live)
    assert [s.tensor[7].item() for s in live] == [3, 4, 5]
    assert (found.step, found.meta["samples"]) == (3, 24)


def test_a_copy_is_fetched_from_the_node_that_has_it(
    nodes: tuple[Node, Node], rank: Rank
) -> None:
    here, there = nodes
    there.start(0)
    taken(rank(there), 5)
    here.start(1, resume=5, sources=((0, *there.place),))
    found = rank(here, generation=1).find()
    assert found.step == 5
    assert found.memory.content(4).tobytes() == torch.tensor([5.0]).numpy().tobytes()


def test_a_frozen_node_holds_nobody_up(nodes: tuple[Node, Node], rank: Rank) -> None:
    here, there = nodes
    here.start(0, buddy=there.place)
    there.start(0)
    copies = taken(rank(here), 1)
    there.process.suspend()
    copies.take(2, {}, shards(2))  # larger than what sockets hold
    assert copies.busy
    copies.close()  # the rank is killed
    assert here.holds() == [(0, 1), (0, 2)]
    here.start(1, resume=2)
    again = rank(here, generation=1)
    assert again.find().step == 2
    taken(again, 3)


def test_a_copy_that_was_damaged_on_the_way_is_not_kept(
    nodes: tuple[Node, Node], rank: Rank
) -> None:
    _, there = nodes
    there.start(0)
    header = {"word": WORD, "kind": "copy", "rank": 0, "generation": 0, "step": 4}
    for damage, answer in ((b"", b'{"kept":4}\n'), (b"x", b"")):
        with socket.create_connection(there.place) as sock:
            content = b"state of a rank" * 1000
            line = json.dumps(header | {"size": len(content), "meta": {}}) + "\n"
            digest = fingerprint(memoryview(content))
            sock.sendall(line.encode() + damage + content[len(damage) :] + digest)
            assert sock.recv(100) == answer
    assert there.holds() == [(0, 4)]


def test_a_copy_that_was_damaged_in_memory_is_refused(
    nodes: tuple[Node, Node], rank: Rank
) -> None:
    here, there = nodes
    here.start(0, buddy=there.place)
    there.start(0)
    copies = taken(rank(here), 1)
    copies._slots[0].view[12345] ^= 1
    here.start(1, resume=1)
    with pytest.raises(CopyLostError, match="damaged"):
        rank(here, generation=1).find()


def test_a_keeper_that_died_is_replaced_by_one_that_holds_nothing(
    nodes: tuple[Node, Node], rank: Rank
) -> None:
    here, there = nodes
    here.start(0, buddy=there.place)
    there.start(0)
    copies = taken(rank(here), 1)
    here.process.kill()
    copies.close()
    assert here.holds() == []  # answers for the dead, and starts another
    here.start(1, resume=1, sources=((0, *there.place),), buddy=there.place)
    again = rank(here, generation=1)
    assert again.find().step == 1  # the other node has it
    taken(again, 2)
    assert (0, 2) in here.holds()
    assert (0, 2) in there.holds()


def test_without_a_keeper_a_rank_does_without_copies(nodes: tuple[Node, Node]) -> None:
    copies = MemoryCopies("hpcplat-nobody", 0, 1)
    copies.hello()
    copies.prepare(shards(0))
    assert copies.room(shards(0), 1) is None
    assert not copies.due(1)
    with pytest.raises(CopyLostError):
        copies.find()


def test_who_does_not_know_the_word_gets_nothing(
    nodes: tuple[Node, Node], rank: Rank
) -> None:
    _, there = nodes
    there.start(0)
    taken(rank(there), 1)
    with socket.create_connection(there.place) as sock:
        sock.sendall(b'{"word":"?","kind":"fetch","rank":0,"step":1}\n')
        assert sock.recv(100) == b""
