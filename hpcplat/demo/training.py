"""What the demo asks for: a small GPT over two nodes or four, and a spare."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

import yaml

TENSOR: Final = 2
PIPELINE: Final = 2
RANKS_PER_NODE: Final = 2
STEPS: Final = 120
FEWEST_STEPS: Final = 20  # so that there is something to see before and after


@dataclass(frozen=True, slots=True)
class Story:
    """The run: its size, its length, and the step after which a node dies."""

    name: str
    nodes: int
    steps: int
    kill_after: int
    spare_nodes: int = 1

    @property
    def layout(self) -> str:
        """The layout in words."""
        data = self.nodes * RANKS_PER_NODE // (TENSOR * PIPELINE)
        words = f"tensor {TENSOR} × pipeline {PIPELINE}"
        return words if data == 1 else f"{words} × data {data}"


def story(steps: int = STEPS, cores: int | None = None) -> Story:
    """Return the demo's run for a machine with so many cores; a node dies half-way."""
    nodes = 4 if (cores or os.cpu_count() or 1) >= 4 else 2
    return Story("gpt", nodes, steps, kill_after=steps * 5 // 9)


def undisturbed(told: Story) -> Story:
    """Return its twin: the same run, but no node dies."""
    return Story(f"{told.name}-undisturbed", told.nodes, told.steps, kill_after=0)


def spec_text(told: Story, gpu_type: str) -> str:
    """Return the job's spec as YAML."""
    values = {
        "name": told.name,
        "kind": "train",
        "preset": "gpt-tiny",
        "data": "stdlib@latest",
        "resources": {
            "nodes": told.nodes,
            "spare_nodes": told.spare_nodes,
            "gpus_per_node": RANKS_PER_NODE,
            "gpu_type": gpu_type,
            "memory": "8G",
            "time": "30m",
        },
        "parallelism": {"tensor": TENSOR, "pipeline": PIPELINE},
        "checkpoint": {"every": 20},
        "settings": {
            "steps": told.steps,
            "model": {"vocab_size": 512},
            "data": {"sequence_length": 64},
            "batch": {"global_size": 16, "micro_size": 2},
            "optimizer": {"learning_rate": 0.003},
        },
        "environment": {"variables": {"OMP_NUM_THREADS": "1"}},
    }
    return yaml.safe_dump(values, sort_keys=False)
