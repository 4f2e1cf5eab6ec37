"""Where a request stands against Slurm's limits: refused for ever, or waiting for what."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from hpcplat.jobs import JobSpec
from hpcplat.quantities import counted, format_duration
from hpcplat.slurm.scheduler import Partition
from server import quotas
from server.problems import FieldsError
from server.quotas import Asked, Book, Limit
from server.schemas import Invalid, Outlook

_FIELDS = {
    "time": "resources.time",
    "node": "resources.nodes",
    "cpu": "resources.cpus_per_task",
    "mem": "resources.memory",
    "jobs": "array",
}


def asked_by(
    spec: JobSpec, user: str, account: str, partition: str, tasks: int
) -> Asked:
    """Return what a job asks of Slurm's limits; each task of an array is a job."""
    asked = spec.resources
    memory = asked.memory
    return Asked(
        user=user,
        account=account,
        partition=partition,
        qos=asked.qos or "",
        nodes=asked.all_nodes,
        gpus=asked.all_nodes * asked.gpus_per_node,
        gpu_type=asked.gpu_type or "",
        cpus=asked.all_nodes * asked.ranks_per_node * asked.cpus_per_task,
        memory=None if memory is None else memory * asked.all_nodes,
        time=asked.time,
        jobs=tasks,
    )


def refuse_hopeless(book: Book, asked: Asked, spec: JobSpec) -> None:
    """Refuse what can never run: FieldsError with the limit, its owner, the nearest."""
    found = [
        *_closed_doors(book, asked),
        *(_refusal(limit, spec) for limit in _hopeless(book, asked)),
    ]
    if found:
        raise FieldsError(found)


def outlook(book: Book, asked: Asked, priority: int | None = None) -> Outlook:
    """Return what a request waits for: limits, fair share, place in the queue."""
    # A job that is in the queue counts among the submitted ones already.
    counted = {"GrpSubmit", "MaxSubmit"} if priority is not None else set()
    over = [limit for limit in quotas.met(book, asked) if limit.name not in counted]
    return Outlook(
        waits_for=[limit.in_words() + "." for limit in over],
        fair_share=quotas.fair_share(book, asked.account, asked.user),
        place=quotas.place(book, asked.partition, priority),
    )


def _hopeless(book: Book, asked: Asked) -> list[Limit]:
    return [limit for limit in quotas.met(book, asked) if limit.is_hopeless]


def _closed_doors(book: Book, asked: Asked) -> Iterator[Invalid]:
    if not quotas.is_member(book, asked):
        yield _invalid(
            "workspace",
            f"Slurm does not let {asked.user} into account {asked.account}.",
            "Ask an administrator to run hpcplat admin sync.",
        )
    allowed = quotas.qos_allowed(book, asked)
    if asked.qos and asked.qos not in book.qos:
        yield _invalid(
            "resources.qos",
            f"There is no QOS {asked.qos}.",
            f"There are: {', '.join(sorted(book.qos))}.",
        )
    elif asked.qos and allowed and asked.qos not in allowed:
        yield _invalid(
            "resources.qos",
            f"Account {asked.account} may not use QOS {asked.qos}.",
            f"Use one of: {', '.join(allowed)}.",
        )
    partition = book.partitions.get(asked.partition)
    if partition is not None:
        yield from _closed_partition(
            partition, asked, quotas.effective_qos(book, asked)
        )


def _closed_partition(
    partition: Partition, asked: Asked, qos: str
) -> Iterator[Invalid]:
    accounts = partition.allowed_accounts
    shut = accounts is not None and asked.account not in accounts
    if asked.account and (shut or asked.account in partition.denied_accounts):
        yield _invalid(
            "resources.partition",
            f"Partition {partition.name} is not open to account {asked.account}.",
            f"It is to: {', '.join(accounts or ('others',))}.",
        )
    if qos and partition.allowed_qos is not None and qos not in partition.allowed_qos:
        yield _invalid(
            "resources.qos",
            f"Partition {partition.name} does not take QOS {qos}.",
            f"It takes: {', '.join(partition.allowed_qos)}.",
        )


def _refusal(limit: Limit, spec: JobSpec) -> Invalid:
    field = _FIELDS.get(limit.what, "resources.gpus_per_node")
    return _invalid(
        field, f"{limit.in_words()}: it can never run.", _nearest(limit, spec)
    )


def _nearest(limit: Limit, spec: JobSpec) -> str:
    """Return the nearest request that the limit allows, as the spec spells it."""
    asked, most = spec.resources, limit.allowed
    if most == 0:
        return f"Nothing of it is allowed here; ask whoever manages {limit.owner}."
    if limit.what == "time":
        return f"Ask for at most {format_duration(timedelta(seconds=most))}."
    if limit.what == "jobs":
        return f"Ask for at most {counted(most, 'task')}."
    if limit.what == "node":
        return f"Ask for at most {counted(most, 'node')} (spares included)."
    if limit.what.startswith("gres/gpu") and not limit.what.endswith("minutes"):
        each = asked.gpus_per_node
        if each and most >= each:
            nodes, gpus = counted(most // each, "node"), counted(each, "GPU")
            return f"Ask for at most {nodes} with {gpus} each."
        return f"Ask for 1 node with {counted(most, 'GPU')}."
    if limit.what.endswith("minutes") and limit.asked and asked.time is not None:
        seconds = int(asked.time.total_seconds() * most / limit.asked)
        return f"Ask for at most {format_duration(timedelta(seconds=seconds))}."
    return f"Ask for at most {most} in all."


def _invalid(field: str, detail: str, remedy: str) -> Invalid:
    return Invalid(field=f"spec.{field}", detail=detail, remedy=remedy)
