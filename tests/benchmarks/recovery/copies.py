"""What a copy in memory costs a step: `python tests/benchmarks/recovery/copies.py`.

Two keepers on this machine; beside them a memcpy of the same bytes, those bytes over
loopback TCP alone, and torch's asynchronous checkpoint (DCP) of the same tensors. All in
turns, so that each sees the same machine; medians.
"""

from __future__ import annotations

import os
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint.state_dict_saver as dcp

from hpcplat.checkpoints.shard import Shard, whole
from launchers.loop import Loop
from launchers.memory import MemoryCopies
from launchers.messages import Start
from launchers.recovery.keeperprocess import KeeperProcess

SIZES = (0.5, 4, 32, 128)  # MB
TENSORS = 16
ROUNDS = 15


def main() -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29877"}
    dist.init_process_group("gloo", rank=0, world_size=1)
    print("| MB | memcpy ms | step waits ms | / memcpy | until safe on two nodes ms |")
    print("|---|---|---|---|---|", end="")
    print("\n", end="")
    for size in SIZES:
        print(_row(size))


def _row(size: float) -> str:
    shards = _shards(size)
    loop, word = Loop(), "word"
    own, other = KeeperProcess(loop, word), KeeperProcess(loop, word)
    buddy = ("127.0.0.1", other.port)
    for keeper in (own, other):
        keeper.start(Start(0, (0,), 1, 0, "127.0.0.1", 1, buddy=buddy))
    copies = MemoryCopies(own.name, 0, 1)
    copies.prepare(shards)
    target = [torch.empty_like(shard.tensor) for shard in shards]
    memcpy, waits, safe, tcp, torchs = [], [], [], [], []
    for step in range(ROUNDS):
        memcpy.append(_time(lambda: _copy(target, shards)))
        begun = time.perf_counter()
        waits.append(_time(lambda step=step: copies.take(step, {}, shards)))  # type: ignore[misc]
        while copies.busy:
            time.sleep(0.0002)
        safe.append(time.perf_counter() - begun)
        tcp.append(_loopback(int(size * 1e6)))
        if step < 5:
            torchs.append(_async_save(shards))
    loop.close()
    numbers = [1e3 * statistics.median(times) for times in (memcpy, waits, safe)]
    alone = 1e3 * statistics.median(tcp)
    blocks = 1e3 * statistics.median(torchs)
    return (
        f"| {size:g} | {numbers[0]:.2f} | {numbers[1]:.2f} | "
        f"{numbers[1] / numbers[0]:.2f} | {numbers[2]:.2f} | "
        f"(TCP alone {alone:.2f}; DCP async_save holds the step {blocks:.1f})"
    )


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


def _loopback(size: int) -> float:
    """Return the seconds that the bytes take over TCP, with an answer."""
    content = bytearray(size)
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=_swallow, args=(server, size))
        thread.start()
        with socket.create_connection(server.getsockname()) as sock:
            begun = time.perf_counter()
            sock.sendall(content)
            sock.recv(1)
            took = time.perf_counter() - begun
        thread.join()
    return took


def _swallow(server: socket.socket, size: int) -> None:
    sock, _ = server.accept()
    buffer = bytearray(1 << 20)
    with sock:
        while size > 0:
            size -= sock.recv_into(buffer)
        sock.sendall(b"+")


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
