"""sinfo: the nodes with their states, GPUs, CPUs and memory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from hpcplat.slurm import gres
from hpcplat.slurm.answers import (
    UnreadableError,
    clip,
    names,
    parse_count,
    read,
    rows,
    text_or_blank,
)
from hpcplat.slurm.scheduler import Node

# Names of sinfo's --Format that 22.05 to 26.05 all know.
COLUMNS: Final = (
    "NodeList",
    "PartitionName",
    "StateComplete",
    "Gres",
    "GresUsed",
    "CPUsState",
    "Memory",
    "AllocMem",
    "Features",
    "Reason",
)

_CPUS: Final = re.compile(r"(?P<used>\d{1,9})/\d{1,9}/\d{1,9}/(?P<all>\d{1,9})")


def argv(separator: str) -> list[str]:
    """Return the arguments that print a row for each node and partition."""
    columns = ",".join(f"{column}:{separator}" for column in COLUMNS)
    return [
        "sinfo",
        "--noheader",
        "--noconvert",
        "--all",
        "--local",
        "--Node",
        f"--Format={columns}",
    ]


def parse(stdout: str, separator: str) -> tuple[Node, ...]:
    """Return the nodes, each with all of its partitions.

    A node in no partition is not shown: no job can run there.
    """
    nodes: dict[str, Node] = {}
    for row in rows(stdout, separator, len(COLUMNS)):
        node = read(_node, row)
        known = nodes.get(node.name)
        if known is not None:
            node = replace(known, partitions=known.partitions + node.partitions)
        nodes[node.name] = node
    return tuple(nodes.values())


def _node(row: list[str]) -> Node:
    field = dict(zip(COLUMNS, row, strict=True))
    state, *flags = field["StateComplete"].upper().split("+")
    cpus = _CPUS.fullmatch(field["CPUsState"])
    if cpus is None or not state.isalpha():
        raise UnreadableError(f"{clip(' | '.join(row))} is not a node.")
    return Node(
        name=field["NodeList"],
        state=state,
        flags=frozenset(flags),
        partitions=(field["PartitionName"],),
        features=names(field["Features"]),
        gpus=gres.gpus_by_type(field["Gres"]),
        gpus_used=_used(field["GresUsed"]),
        cpus=int(cpus["all"]),
        cpus_used=int(cpus["used"]),
        memory_mib=parse_count(field["Memory"]),
        memory_used_mib=parse_count(field["AllocMem"]),
        reason=text_or_blank(field["Reason"]),
    )


def _used(field: str) -> Mapping[str, int]:
    counts = gres.gpus_by_type(field)
    return {kind: count for kind, count in counts.items() if count}


def argv_slurmd(node: str) -> list[str]:
    """Return the question for a node's address and slurmd's port."""
    return ["sinfo", "--noheader", f"--nodes={node}", "-O", "NodeAddr:256,Port:16"]


def parse_slurmd(answer: str) -> tuple[str, int] | None:
    """Return (address, port), or None where Slurm does not know the node."""
    words = answer.split()[:2]
    if len(words) < 2 or not words[1].isdecimal():
        return None
    return words[0], int(words[1])
