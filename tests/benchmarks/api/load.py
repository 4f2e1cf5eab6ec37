"""A load generator: many HTTP/1.1 clients on keep-alive connections, by asyncio alone.

httpx would spend more time on a request than the service does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Seen:
    """What the clients saw: seconds of each answer, and how many were none."""

    seconds: list[float] = field(default_factory=list)
    errors: int = 0


async def client(
    socket: str, paths: list[str], until: float, pause: float, seen: Seen, seed: int
) -> None:
    """Ask for one path after another, with a pause between, until the time is over."""
    chance = random.Random(seed)
    reader, writer = await asyncio.open_unix_connection(socket)
    await asyncio.sleep(chance.random() * pause)
    while time.monotonic() < until:
        path = chance.choice(paths)
        started = time.perf_counter()
        try:
            status = await _ask(reader, writer, path)
        except (OSError, asyncio.IncompleteReadError):
            seen.errors += 1
            reader, writer = await asyncio.open_unix_connection(socket)
            continue
        seen.seconds.append(time.perf_counter() - started)
        seen.errors += status != 200
        if pause:
            await asyncio.sleep(pause)
    writer.close()


async def _ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str
) -> int:
    writer.write(f"GET {path} HTTP/1.1\r\nHost: s\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
    await reader.readexactly(int(length))
    return int(head[9:12])


async def run(options: argparse.Namespace) -> Seen:
    """Run all clients for the time given."""
    paths = Path(options.paths).read_text().split()
    seen = Seen()
    until = time.monotonic() + options.seconds
    async with asyncio.TaskGroup() as group:
        for number in range(options.clients):
            group.create_task(
                client(options.socket, paths, until, options.pause, seen, number)
            )
    return seen


def summary(seen: Seen) -> dict[str, float]:
    """Return how many answers there were, how many errors, and what they took, in s."""
    times = sorted(seen.seconds)
    at = {"p50": 0.5, "p99": 0.99, "longest": 1.0}
    took = {name: times[int(part * (len(times) - 1))] for name, part in at.items()}
    return {"answers": len(times), "errors": seen.errors, **took}


def main() -> None:
    """Print what was seen as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket", required=True)
    parser.add_argument("--paths", required=True, help="a file, one path a line")
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--pause", type=float, default=0)
    options = parser.parse_args()
    try:
        import uvloop

        seen = uvloop.run(run(options))
    except ImportError:
        seen = asyncio.run(run(options))
    print(json.dumps(summary(seen)))


if __name__ == "__main__":
    main()
