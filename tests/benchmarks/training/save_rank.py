"""The saves of the benchmark, in one process."""

from __future__ import annotations

import json
import shutil
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict_saver import async_save, save

from hpcplat.checkpoints.checkpointer import Checkpointer
from hpcplat.checkpoints.manifest import Origin
from hpcplat.checkpoints.shard import whole
from hpcplat.checkpoints.writing import Facts

ROUNDS, TENSORS, SIZE = 9, 24, (2048, 1536)
Times = tuple[float, float]  # seconds: the step waits; all of it


class Ways:
    """The same tensors, saved in every way into folders of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.number = folder, 0
        self.state = {f"layer{n}.weight": torch.randn(SIZE) for n in range(TENSORS)}
        self.target = {n: torch.zeros_like(t) for n, t in self.state.items()}
        self.shards = [whole(name, tensor) for name, tensor in self.state.items()]
        self.saver = Checkpointer(folder / "ours", "bench")
        self.saver.reserve(self.shards)

    def memcpy(self) -> Times:
        begun = perf_counter()
        for name, tensor in self.state.items():
            self.target[name].copy_(tensor)
        return perf_counter() - begun, 0.0

    def ours(self) -> Times:
        self.number += 1
        begun = perf_counter()
        facts = Facts(self.number, self.number, Origin(world_size=1))
        stall = self.saver.save(facts, self.shards)
        self.saver.wait()
        return stall, perf_counter() - begun

    def async_save(self) -> Times:
        path, begun = self.folder / "async", perf_counter()
        pending = async_save(self.state, checkpoint_id=path)
        returned = perf_counter() - begun
        pending.result()  # type: ignore[union-attr]
        taken = perf_counter() - begun
        shutil.rmtree(path)
        return returned, taken

    def save(self) -> Times:
        path, begun = self.folder / "save", perf_counter()
        save(self.state, checkpoint_id=path)
        taken = perf_counter() - begun
        shutil.rmtree(path)
        return taken, taken


def main(folder: Path) -> None:
    """Save in all ways, in turns; print the medians."""
    dist.init_process_group("gloo")
    ways = Ways(folder)
    actions: dict[str, Callable[[], Times]] = {
        "memcpy": ways.memcpy,
        "hpcplat": ways.ours,
        "torch DCP async_save": ways.async_save,
        "torch DCP save": ways.save,
    }
    times: dict[str, list[Times]] = {name: [] for name in actions}
    for number in range(ROUNDS + 1):
        for name, action in actions.items():
            taken = action()
            if number:  # the first round warms all up
                times[name].append(taken)
    found: dict[str, object] = {
        name: [statistics.median(column) for column in zip(*taken, strict=True)]
        for name, taken in times.items()
    }
    copies = [stall for stall, _ in times["memcpy"]]
    found["ratios"] = {
        name: statistics.median(
            one / copy for (one, _), copy in zip(taken, copies, strict=True)
        )
        for name, taken in times.items()
    }
    found["megabytes"] = sum(t.numel() * 4 for t in ways.state.values()) / 1e6
    print(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
