"""What a copy in memory costs a step: `python tests/benchmarks/recovery/copies.py`.

Two keepers on this machine; beside them a memcpy of the same bytes, those bytes over
loopback TCP into memory of that size, and torch's asynchronous checkpoint (DCP) of the
same tensors. All in turns, so that each sees the same machine; medians.
"""

from __future__ import annotations

import os
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint.state_dict_saver as dcp

from hpcplat.checkpoints.shard import Shard, whole
from launchers.loop import Loop
from launchers.memory import MemoryCopies
from launchers.messages import Start
from launchers.recovery.keeperprocess import KeeperProcess

SIZES = (0.5, 4, 32, 128, 512)  # MB
TENSORS = 16
ROUNDS = 15
SAVES = 5  # DCP writes to disk: that takes a while
HEAD = (
    "state of a rank",
    "memcpy",
    "the step waits",
    "x memcpy",
    "TCP alone",
    "until safe on two nodes",
    "x (memcpy + TCP)",
    "DCP `async_save` holds the step",
    "x the step's wait",
)


@dataclass
class Times:
    """Seconds of each round, by what took them."""

    memcpy: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    safe: list[float] = field(default_factory=list)
    tcp: list[float] = field(default_factory=list)
    saves: list[float] = field(default_factory=list)


def main() -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29877"}
    dist.init_process_group("gloo", rank=0, world_size=1)
    print("| " + " | ".join(HEAD) + " |\n" + "|---" * len(HEAD) + "|")
    for size in SIZES:
        print(_row(size, _measure(size)), flush=True)
    dist.destroy_process_group()


def _measure(size: float) -> Times:
    shards, times = _shards(size), Times()
    loop, word = Loop(), "word"
    own, other = KeeperProcess(loop, word), KeeperProcess(loop, word)
    buddy = ("127.0.0.1", other.port)
    for keeper in (own, other):
        keeper.start(Start(0, (0,), 1, 0, "127.0.0.1", 1, buddy=buddy))
    copies = MemoryCopies(own.name, 0, 1)
    copies.hello()
    copies.prepare(shards)
    target = [torch.zeros_like(shard.tensor) for shard in shards]
    loopback = Loopback(int(size * 1e6))
    for step in range(ROUNDS):
        times.memcpy.append(_time(lambda: _copy(target, shards)))
        begun = time.perf_counter()
        times.waits.append(_time(lambda step=step: copies.take(step, {}, shards)))  # type: ignore[misc]
        while copies.busy:
            time.sleep(0.0002)
        times.safe.append(time.perf_counter() - begun)
        times.tcp.append(_time(loopback.send))
        if step < SAVES:
            times.saves.append(_async_save(shards))
    loopback.close()
    copies.close()
    for keeper in (own, other):
        keeper.close()
    loop.close()
    return times


def _row(size: float, times: Times) -> str:
    median = statistics.median
    memcpy, waits, safe = (median(t) for t in (times.memcpy, times.waits, times.safe))
    tcp, saves = median(times.tcp), median(times.saves)
    cells = (
        f"{size:g} MB",
        f"{1e3 * memcpy:.2f} ms",
        f"{1e3 * waits:.2f} ms",
        f"{waits / memcpy:.2f}",
        f"{1e3 * tcp:.2f} ms",
        f"{1e3 * safe:.2f} ms",
        f"{safe / (memcpy + tcp):.2f}",
        f"{1e3 * saves:.1f} ms",
        f"{saves / waits:.1f}",
    )
    return "| " + " | ".join(cells) + " |"


def _shards(size: float) -> list[Shard]:
    count = int(size * 1e6 / 4 / TENSORS)
    return [whole(f"t{n}", torch.randn(count)) for n in range(TENSORS)]


def _copy(target: list[torch.Tensor], shards: list[Shard]) -> None:
    for to, shard in zip(target, shards, strict=True):
        to.copy_(shard.tensor)


def _time(action: Callable[[], object]) -> float:
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


class Loopback:
    """A connection over which some bytes go again and again, each time with an answer."""

    def __init__(self, size: int) -> None:
        self._content, self._size = bytearray(os.urandom(size)), size
        with socket.create_server(("127.0.0.1", 0)) as server:
            self._sock = socket.create_connection(server.getsockname())
            peer, _ = server.accept()
        self._thread = threading.Thread(target=self._take, args=(peer,))
        self._thread.start()

    def send(self) -> None:
        self._sock.sendall(self._content)
        self._sock.recv(1)

    def close(self) -> None:
        self._sock.close()
        self._thread.join()

    def _take(self, peer: socket.socket) -> None:
        memory = memoryview(bytearray(os.urandom(self._size)))  # each page is there
        with peer:
            while True:
                done = 0
                while done < self._size:
                    count = peer.recv_into(memory[done:])
                    if not count:
                        return
                    done += count
                peer.sendall(b"+")


def _async_save(shards: list[Shard]) -> float:
    state = {shard.key: shard.tensor for shard in shards}
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        saved = dcp.async_save(state, checkpoint_id=Path(folder) / "x")
        took = time.perf_counter() - begun
        saved.result()  # type: ignore[union-attr] # a future
    return took


if __name__ == "__main__":
    main()
