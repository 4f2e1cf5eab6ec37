"""What a call of sbatch asks for at least: what Slurm's limits are held against.

Counts that only Slurm can know (tasks that follow from GPUs, a partition's defaults) are
left at the least they can be: who refuses by these numbers refuses nothing that could run.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from hpcplat.errors import InvalidError
from hpcplat.jobs.array import parse_array
from hpcplat.quantities import parse_limit, parse_memory
from hpcplat.sbatchline.precedence import Request

_FIRST: Final = re.compile(r"\d+")
_GPU: Final = re.compile(
    r"(?:gres/)?gpu(?::(?P<type>[A-Za-z_][\w.-]*))?(?:[:=](?P<n>\d+))?"
)
_TYPED: Final = re.compile(r"(?:(?P<type>[A-Za-z_][\w.-]*):)?(?P<n>\d+)")


@dataclass(frozen=True, slots=True)
class Demand:
    """The least of each, all nodes together; memory in MiB; None: not said."""

    nodes: int
    cpus: int
    gpus: int
    gpu_type: str
    memory: int | None
    time: timedelta | None
    tasks_of_array: int


def demand(asked: Request) -> Demand:
    """Return what the first (mostly the only) component asks for at least."""
    nodes = _nodes(asked)
    tasks = _count(asked, "ntasks") or nodes * (_count(asked, "ntasks-per-node") or 1)
    cpus = tasks * (_count(asked, "cpus-per-task") or 1)
    gpus, gpu_type = _gpus(asked, nodes, tasks)
    return Demand(
        nodes=nodes,
        cpus=cpus,
        gpus=gpus,
        gpu_type=gpu_type,
        memory=_memory(asked, nodes, cpus, gpus),
        time=_time(asked),
        tasks_of_array=_tasks_of_array(asked),
    )


def _count(asked: Request, name: str) -> int:
    """Return the least number of an option's value (``2`` of ``2-4``); 0 without one."""
    match = _FIRST.match(asked.value(name) or "")
    return int(match[0]) if match else 0


def _nodes(asked: Request) -> int:
    given = _count(asked, "nodes")
    per_node = _count(asked, "ntasks-per-node")
    if given or not per_node:
        return given or 1
    return -(-max(1, _count(asked, "ntasks")) // per_node)


def _gpus(asked: Request, nodes: int, tasks: int) -> tuple[int, str]:
    for option, times in (
        ("gpus", 1),
        ("gpus-per-node", nodes),
        ("gpus-per-task", tasks),
    ):
        if match := _TYPED.fullmatch(asked.value(option) or ""):
            return int(match["n"]) * times, match["type"] or ""
    for part in (asked.value("gres") or "").split(","):
        if match := _GPU.fullmatch(part):
            return int(match["n"] or 1) * nodes, match["type"] or ""
    return 0, ""


def _memory(asked: Request, nodes: int, cpus: int, gpus: int) -> int | None:
    for option, times in (("mem", nodes), ("mem-per-cpu", cpus), ("mem-per-gpu", gpus)):
        with suppress(InvalidError):
            if text := asked.value(option):
                return parse_memory(text) * times or None  # 0: all of a node's
    return None


def _time(asked: Request) -> timedelta | None:
    """Return the least that Slurm may make of the time: --time-min counts before it."""
    with suppress(InvalidError):
        text = asked.value("time-min") or asked.value("time")
        return parse_limit(text) if text else None
    return None


def _tasks_of_array(asked: Request) -> int:
    with suppress(InvalidError):
        if text := asked.value("array"):
            return len(parse_array(text).indices)
    return 1
