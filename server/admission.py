"""Admission: what can never run is refused before it waits, with the nearest that can.

Slurm itself accepts more nodes than a partition has, or a time above its limit, in most
versions, and lets the job wait for ever: who wants that refused must look first.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

from hpcplat.jobs import JobSpec
from hpcplat.quantities import counted, format_duration, format_memory
from hpcplat.sitepolicy import SitePolicy
from hpcplat.slurm.scheduler import Node, Partition
from server.problems import FieldsError
from server.schemas import Invalid
from server.site import Facts

SHELLS: Final = frozenset({"python", "python3", "bash", "sh"})
PLAIN: Final = re.compile(r"[\w./:=@%+,\- ]+")  # what means to a shell what it says


def admit(spec: JobSpec, facts: Facts) -> Partition:
    """Return the partition that the job goes to first; FieldsError if it can't run."""
    partitions = _partitions(spec, facts)
    refusals = [_refusals(spec, partition, facts.nodes) for partition in partitions]
    best = min(refusals, key=len)
    missing = _missing_script(spec)
    if best or missing:
        raise FieldsError([*best, *missing])
    return partitions[refusals.index(best)]


def policy_for(policy: SitePolicy, facts: Facts, spec: JobSpec) -> SitePolicy:
    """Return the site's policy with what Slurm itself says filled in.

    Where accounting does not keep comments, the name must carry the key. A job that
    gives no time gets no more than its partition allows.
    """
    stored = facts.config.get("AccountingStoreFlags", "")
    limits = [partition.max_time for partition in _partitions(spec, facts)]
    return policy.model_copy(
        update={
            "max_array_size": facts.max_array_size,
            "key_in_name": policy.key_in_name or "job_comment" not in stored,
            "default_time": min([policy.default_time, *filter(None, limits)]),
        }
    )


def _partitions(spec: JobSpec, facts: Facts) -> list[Partition]:
    by_name = {partition.name: partition for partition in facts.partitions}
    if spec.resources.partition is None:
        default = [partition for partition in facts.partitions if partition.is_default]
        if not default:
            raise _refused(
                "partition", "This cluster has no default partition.", _names(by_name)
            )
        return default
    for name in spec.resources.partition.split(","):
        if name not in by_name:
            near = difflib.get_close_matches(name, by_name, 1)
            hint = f"The nearest is {near[0]}." if near else _names(by_name)
            raise _refused("partition", f"There is no partition {name}.", hint)
    return [by_name[name] for name in spec.resources.partition.split(",")]


def _refusals(
    spec: JobSpec, partition: Partition, nodes: Sequence[Node]
) -> list[Invalid]:
    inside = [node for node in nodes if partition.name in node.partitions]
    found = [
        _time(spec.resources.time, partition),
        _node_count(spec, partition, inside),
        _gpus(spec, partition, inside),
        _cpus(spec, partition, inside),
        _memory(spec, partition, inside),
    ]
    return [refusal for refusal in found if refusal is not None]


def _time(asked: timedelta | None, partition: Partition) -> Invalid | None:
    if asked is None or partition.max_time is None or asked <= partition.max_time:
        return None
    limit = format_duration(partition.max_time)
    return _invalid(
        "time",
        f"{format_duration(asked)} is over the limit of partition {partition.name}.",
        f"Ask for at most {limit}.",
    )


def _node_count(
    spec: JobSpec, partition: Partition, inside: Sequence[Node]
) -> Invalid | None:
    most = min(filter(None, [len(inside), partition.max_nodes]), default=0)
    if spec.resources.all_nodes <= most:
        return None
    return _invalid(
        "nodes",
        f"{spec.resources.all_nodes} nodes (spares included) are more than the {most}"
        f" that a job may have in partition {partition.name}.",
        f"Ask for at most {most}.",
    )


def _gpus(
    spec: JobSpec, partition: Partition, inside: Sequence[Node]
) -> Invalid | None:
    asked = spec.resources
    if not asked.gpus_per_node:
        return None
    counts = [_gpus_of(node, asked.gpu_type) for node in inside]
    if not any(counts):
        return _unknown_gpus(asked.gpu_type, partition, inside)
    most = max(counts)
    if asked.gpus_per_node > most:
        return _invalid(
            "gpus_per_node",
            f"No node of partition {partition.name} has {asked.gpus_per_node} such"
            " GPUs.",
            f"Ask for at most {most}.",
        )
    fitting = sum(count >= asked.gpus_per_node for count in counts)
    if asked.all_nodes <= fitting or asked.all_nodes > len(inside):
        return None
    return _invalid(
        "nodes",
        f"Partition {partition.name} has only {counted(fitting, 'node')} with"
        f" {counted(asked.gpus_per_node, 'such GPU')}.",
        f"Ask for at most {counted(fitting, 'node')}.",
    )


def _unknown_gpus(
    gpu_type: str | None, partition: Partition, inside: Sequence[Node]
) -> Invalid:
    there = sorted({name for node in inside for name in node.gpus if name})
    if gpu_type is None:
        return _invalid(
            "gpus_per_node",
            f"Partition {partition.name} has no GPUs.",
            "Choose another partition, or leave gpus_per_node out.",
        )
    near = difflib.get_close_matches(gpu_type, there, 1)
    hint = f"The nearest is {near[0]}. " if near else ""
    return _invalid(
        "gpu_type",
        f"Partition {partition.name} has no GPU of type {gpu_type}.",
        f"{hint}It has: {', '.join(there) or 'none'}.",
    )


def _cpus(
    spec: JobSpec, partition: Partition, inside: Sequence[Node]
) -> Invalid | None:
    asked = spec.resources.ranks_per_node * spec.resources.cpus_per_task
    most = max((node.cpus for node in inside), default=0)
    if asked <= most:
        return None
    return _invalid(
        "cpus_per_task",
        f"{counted(spec.resources.ranks_per_node, 'rank')} of"
        f" {counted(spec.resources.cpus_per_task, 'CPU')}"
        f" need {asked} CPUs on a node; partition {partition.name} has {most}.",
        f"Ask for at most {max(most // spec.resources.ranks_per_node, 1)}.",
    )


def _memory(
    spec: JobSpec, partition: Partition, inside: Sequence[Node]
) -> Invalid | None:
    asked = spec.resources.memory
    most = max((node.memory_mib for node in inside), default=0)
    if asked is None or asked <= most:
        return None
    return _invalid(
        "memory",
        f"{format_memory(asked)} is more than a node of partition {partition.name} has.",
        f"Ask for at most {format_memory(most)}.",
    )


def _missing_script(spec: JobSpec) -> list[Invalid]:
    """Refuse a script that is surely not there: its folder is, on this host."""
    if spec.environment.container is not None:
        return []
    script = _script(_words(spec.command))
    folder = spec.environment.folder
    if script is None or not (folder or script.startswith("/")):
        return []
    path = Path(folder or "/") / script
    if not path.parent.is_dir() or path.exists():
        return []
    return [
        Invalid(
            field="spec.command",
            detail=f"{path} is not there.",
            remedy="Check the name.",
        )
    ]


def _words(command: str | Sequence[str] | None) -> Sequence[str]:
    """Return a command's words; none of a text that only a shell could split."""
    if not isinstance(command, str):
        return command or ()
    words = command.split() if PLAIN.fullmatch(command) else []
    return words if words and "=" not in words[0] else ()


def _script(argv: Sequence[str]) -> str | None:
    """Return the file that a command runs, if it can be told from its words."""
    if not argv:
        return None
    program = Path(argv[0]).name
    if program.rstrip("0123456789.") in SHELLS or program in SHELLS:
        first = argv[1] if len(argv) > 1 else ""
        return first if first.endswith((".py", ".sh")) else None
    return argv[0] if "/" in argv[0] else None


def _gpus_of(node: Node, gpu_type: str | None) -> int:
    if gpu_type is None:
        return sum(node.gpus.values())
    return node.gpus.get(gpu_type, 0)


def _names(names: Iterable[str]) -> str:
    return f"It has: {', '.join(sorted(names))}."


def _invalid(field: str, detail: str, remedy: str) -> Invalid:
    return Invalid(field=f"spec.resources.{field}", detail=detail, remedy=remedy)


def _refused(field: str, detail: str, remedy: str) -> FieldsError:
    return FieldsError([_invalid(field, detail, remedy)])
