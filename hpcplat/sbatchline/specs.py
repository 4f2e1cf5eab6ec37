"""From an sbatch script to a job spec: plain values, and notes on what differs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final

from hpcplat.errors import InvalidError
from hpcplat.jobs.options import PASSED
from hpcplat.quantities import format_memory, parse_memory
from hpcplat.sbatchline.body import Body
from hpcplat.sbatchline.precedence import Request

_GPU: Final = re.compile(
    r"(?:gres/)?gpu(?::(?P<type>[A-Za-z_][\w.-]*))?(?:[:=](?P<n>\d+))?"
)
_TYPED: Final = re.compile(r"(?:(?P<type>[A-Za-z_][\w.-]*):)?(?P<n>\d+)")

# Options whose work the spec's own machinery does, so that nothing is lost.
_SILENT: Final = frozenset(
    {"parsable", "quiet", "verbose", "wait", "test-only", "wrap"}
)

# sbatch's option -> the field of ``resources`` that means the same.
_SAME: Final = {
    "cpus-per-task": "cpus_per_task",
    "partition": "partition",
    "qos": "qos",
    "constraint": "constraint",
    "exclude": "exclude",
    "reservation": "reservation",
    "time": "time",
}


@dataclass(frozen=True, slots=True)
class Imported:
    """The values of a spec, and one line for each thing that is not quite the same."""

    values: dict[str, Any]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Shape:
    nodes: int
    tasks_per_node: int
    cpus_per_task: int
    gpus: int
    gpu_type: str | None


def imported(request: Request, body: Body, path: str) -> Imported:
    """Return the spec that asks for what the script at ``path`` asks.

    Without --job-name the job has the file's name, as with sbatch. Raises InvalidError for
    het jobs, which a spec can't say.
    """
    if len(request.components) > 1:
        raise InvalidError(
            "A heterogeneous job has no spec.", "Submit it as it is: hpcplat sbatch."
        )
    notes: list[str] = []
    shape = _shape(request, notes)
    values: dict[str, Any] = {
        "name": _name(request.value("job-name") or PurePath(path).name)
    }
    if account := request.value("account"):
        values["workspace"] = account
    values["resources"] = _resources(request, shape)
    values["command"] = _command(body, shape, path, notes)
    values |= _rest(request)
    notes += _left_out(request)
    return Imported({k: v for k, v in values.items() if v != {}}, tuple(notes))


def _name(text: str) -> str:
    return re.sub(r"[^\x20-\x7e\xa0-\U0010ffff]", "_", text).strip() or "job"


def _shape(request: Request, notes: list[str]) -> _Shape:
    """Work out nodes, ranks and GPUs as sbatch would lay them out."""
    nodes = _nodes(request, notes)
    tasks = _count(request, "ntasks", 0)
    per_node = _count(request, "ntasks-per-node", 0)
    if not per_node:
        per_node, odd = divmod(max(tasks, nodes), nodes)
        if odd:
            per_node += 1
            notes.append(f"{tasks} tasks do not spread evenly over {nodes} nodes.")
    gpus, gpu_type = _gpus(request, nodes, per_node, notes)
    return _Shape(nodes, per_node, _count(request, "cpus-per-task", 1), gpus, gpu_type)


def _count(request: Request, name: str, default: int) -> int:
    text = request.value(name)
    if text is not None and not text.isdecimal():
        raise InvalidError(f"--{name}={text} is no count.", "Write a number.")
    return int(text) if text else default


def _nodes(request: Request, notes: list[str]) -> int:
    text = request.value("nodes")
    if text is None:
        tasks = _count(request, "ntasks", 1)
        per_node = _count(request, "ntasks-per-node", 0)
        return -(-tasks // per_node) if per_node else 1
    match = re.match(r"\d+", text)
    if match is None or not int(match[0]):
        raise InvalidError(f"--nodes={text} is no count.", "Write a number of nodes.")
    if match[0] != text:
        notes.append(f"--nodes={text} became {match[0]}: a spec says one number.")
    return int(match[0])


def _gpus(
    request: Request, nodes: int, tasks: int, notes: list[str]
) -> tuple[int, str | None]:
    """Return GPUs on each node and their type."""
    per_unit: tuple[tuple[str, Callable[[int], int]], ...] = (
        ("gpus-per-node", lambda count: count),
        ("gpus", lambda count: -(-count // nodes)),
        ("gpus-per-task", lambda count: count * tasks),
    )
    for option, per_node in per_unit:
        match = _TYPED.fullmatch(request.value(option) or "")
        if match:
            return per_node(int(match["n"])), match["type"]
    for part in (request.value("gres") or "").split(","):
        match = _GPU.fullmatch(part)
        if match:
            return int(match["n"] or 1), match["type"]
        if part:
            notes.append(f"--gres={part} is not taken over: a spec knows GPUs only.")
    return 0, None


def _resources(request: Request, shape: _Shape) -> dict[str, Any]:
    found: dict[str, Any] = {"nodes": shape.nodes}
    if shape.gpus:
        found["gpus_per_node"] = shape.gpus
    if shape.gpu_type:
        found["gpu_type"] = shape.gpu_type
    if shape.tasks_per_node != (shape.gpus or 1):
        found["tasks_per_node"] = shape.tasks_per_node
    for option, field in _SAME.items():
        if value := request.value(option):
            found[field] = (
                int(value) if value.isdecimal() and field != "time" else value
            )
    if memory := _memory(request, shape):
        found["memory"] = memory
    if request.has("exclusive"):
        found["exclusive"] = True
    return found


def _memory(request: Request, shape: _Shape) -> str | None:
    """Return memory per node; a share per CPU or GPU is multiplied out."""
    shares = {
        "mem": 1,
        "mem-per-cpu": shape.cpus_per_task * shape.tasks_per_node,
        "mem-per-gpu": shape.gpus,
    }
    for option, times in shares.items():
        amount = request.value(option)
        if amount and times and (mib := parse_memory(amount) * times):
            return format_memory(mib)
    return None


def _command(body: Body, shape: _Shape, path: str, notes: list[str]) -> str | list[str]:
    """Return what each rank runs: what srun starts, or the script of a single task."""
    if body.interpreter:
        return [*body.interpreter, path]
    if body.step:
        notes += [
            f"srun {given.word()} is not taken over." for given in body.step_options
        ]
        if body.before:
            notes.append("The lines ahead of srun now run in every rank, not once.")
        return f"{body.before}\nexec {body.step}\n".lstrip()
    if body.starters:
        notes.append(
            f"The script starts {body.starters} steps itself: every rank would."
            " Change the command, or submit the script as it is: hpcplat sbatch."
        )
    elif shape.nodes * shape.tasks_per_node > 1:
        notes.append("The script ran once, on the first node; now every rank runs it.")
    return body.text


def _rest(request: Request) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if request.has("requeue") or request.has("no-requeue"):
        found["recovery"] = {"requeue": request.has("requeue")}
    if folder := request.value("chdir"):
        found["environment"] = {"folder": folder}
    if array := request.value("array"):
        found["array"] = array
    found["dependencies"] = _dependencies(request.value("dependency") or "")
    found["sbatch"] = {
        given.name: True if given.value is None else given.value
        for given in request.first
        if given.name in PASSED
    }
    return {key: value for key, value in found.items() if value}


_AFTER: Final = {
    "afterok": "ok",
    "afterany": "any",
    "afternotok": "failed",
    "after": "started",
}


def _dependencies(text: str) -> list[dict[str, str]]:
    """Return ``afterok:1:2,afterany:3`` as the spec's list."""
    found = []
    for part in filter(None, text.split(",")):
        kind, *jobs = part.split(":")
        if kind not in _AFTER or not jobs:
            raise InvalidError(
                f"--dependency={part} has no like in a spec.",
                "Submit the script as it is: hpcplat sbatch.",
            )
        found += [{"job": f"slurm:{job}", "after": _AFTER[kind]} for job in jobs]
    return found


_TAKEN: Final = frozenset(
    {*_SAME, "account", "array", "chdir", "dependency", "exclusive", "gpus",
     "gpus-per-node", "gpus-per-task", "gres", "job-name", "mem", "mem-per-cpu",
     "mem-per-gpu", "no-requeue", "nodes", "ntasks", "ntasks-per-node", "requeue"}
)  # fmt: skip


def _left_out(request: Request) -> list[str]:
    known = PASSED | _TAKEN | _SILENT
    return [
        f"{given.word()} is not taken over."
        for given in request.first
        if given.name not in known
    ]
