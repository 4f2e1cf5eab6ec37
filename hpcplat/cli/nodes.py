"""`hpcplat nodes`: a picture of the cluster: each node's GPUs, and who uses them."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import typer

from hpcplat.cli.session import AsJson, print_json, service
from hpcplat.cli.tables import Column, is_terminal, shown, wants_colour
from hpcplat.errors import HpcplatError
from hpcplat.settings import own_environment
from hpcplat.slurm.commandline import CommandLine
from hpcplat.slurm.scheduler import LiveJob
from hpcplat.slurm.states import BaseState

app = typer.Typer()

FREE: Final = "·"
UNKNOWN: Final = "?"  # in use, by whom is not known here
AWAY: Final = "x"  # the node is down or drained
LETTERS: Final = string.ascii_uppercase + string.ascii_lowercase
UNUSABLE: Final = ("DOWN", "DRAIN", "FAIL", "NOT_RESPONDING", "UNKNOWN")


@dataclass(frozen=True, slots=True)
class Use:
    """GPUs in use: by node and user, and each user's letter."""

    by_node: Mapping[str, Mapping[str, int]]
    letters: Mapping[str, str]


@app.command()
def nodes(*, as_json: AsJson = False) -> None:
    """Show each node's GPUs and who uses them, its CPUs, memory and state."""
    with service() as client:
        answer = client.nodes()
    used = use_of(live_jobs())
    if as_json:
        print_json(with_users(answer, used))
        return
    print(picture(answer["nodes"], used))


def live_jobs() -> Sequence[LiveJob]:
    """Return what runs, as Slurm's commands here tell it; nothing where there are none."""
    try:
        return CommandLine(environ=own_environment(), timeout=5).jobs()
    except HpcplatError:
        return ()


def use_of(jobs: Sequence[LiveJob]) -> Use:
    """Return who uses how many GPUs where, a job's spread evenly over its nodes."""
    by_node: dict[str, Counter[str]] = {}
    for job in jobs:
        if job.state.base is not BaseState.RUNNING or not job.gpus or not job.nodes:
            continue
        for place, name in enumerate(job.nodes):
            share, odd = divmod(job.gpus, len(job.nodes))
            by_node.setdefault(name, Counter())[job.user] += share + (place < odd)
    users = sorted({user for counts in by_node.values() for user in counts})
    return Use(by_node, dict(zip(users, LETTERS, strict=False)))


def with_users(answer: dict[str, Any], used: Use) -> dict[str, Any]:
    """Return the API's answer with ``gpu_users`` (user: GPUs) on each node."""
    nodes_ = [
        {**node, "gpu_users": dict(used.by_node.get(node["name"], {}))}
        for node in answer["nodes"]
    ]
    return {**answer, "nodes": nodes_}


def picture(found: Sequence[Mapping[str, Any]], used: Use) -> str:
    """Return one line a node, a character for each GPU, and what the letters mean."""
    columns = (
        Column("NODE", lambda node: node["name"]),
        Column("GPUS", lambda node: gpu_marks(node, used)),
        Column("TYPE", _types, rank=2),
        Column("STATE", _state),
        Column("CPUS", lambda n: f"{n['cpus_used']}/{n['cpus']}", rank=3, right=True),
        Column("MEMORY", _memory, rank=4, right=True),
        Column("REASON", lambda node: node["reason"], rank=5, shrinks=True),
    )
    text = shown(found, columns)
    if not is_terminal():
        return text
    return "\n".join([text, "", legend(found, used)])


def busy_gpus(node: Mapping[str, Any], used: Use) -> int:
    """Return how many GPUs of a node are in use.

    The service's picture may be some seconds older than the list of jobs.
    """
    told: int = sum(node["gpus_used"].values())
    return max(told, sum(used.by_node.get(node["name"], {}).values()))


def gpu_marks(node: Mapping[str, Any], used: Use) -> str:
    """Return a character for each GPU of a node."""
    total: int = sum(node["gpus"].values())
    busy = busy_gpus(node, used)
    if _is_away(node) and not busy:
        return AWAY * total
    who = used.by_node.get(node["name"], {})
    letters = "".join(
        used.letters.get(user, UNKNOWN) * count for user, count in sorted(who.items())
    )
    return letters.ljust(busy, UNKNOWN).ljust(total, FREE)[:total]


def legend(found: Sequence[Mapping[str, Any]], used: Use) -> str:
    """Return what the letters mean, and how many GPUs are free."""
    totals: Counter[str] = Counter()
    for counts in used.by_node.values():
        totals.update(counts)
    parts = [
        f"{letter} {user} ({totals[user]})" for user, letter in used.letters.items()
    ]
    up = [node for node in found if not _is_away(node)]
    gpus = sum(sum(node["gpus"].values()) for node in up)
    busy = sum(busy_gpus(node, used) for node in up)
    bold = ("\x1b[1m", "\x1b[0m") if wants_colour() else ("", "")
    head = f"{bold[0]}{gpus - busy} of {gpus} GPUs free{bold[1]}"
    return "  ".join([head, *parts, f"{FREE} free", f"{AWAY} away"])


def _is_away(node: Mapping[str, Any]) -> bool:
    words = [node["state"], *node["flags"]]
    return any(word.upper().startswith(UNUSABLE) for word in words)


def _types(node: Mapping[str, Any]) -> str:
    return ",".join(name or "gpu" for name in node["gpus"])


def _state(node: Mapping[str, Any]) -> str:
    return "+".join([str(node["state"]), *node["flags"]])


def _memory(node: Mapping[str, Any]) -> str:
    return f"{node['memory_used_mib'] / 1024:.0f}/{node['memory_mib'] / 1024:.0f}G"
