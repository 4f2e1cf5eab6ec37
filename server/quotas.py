"""Slurm's limits: what a request may never have, and what it has to wait for.

Pure: the rules of sacctmgr(1) and Slurm's page on resource limits.

A limit with the name Grp* holds for all jobs below its line together, at each level of
the tree; a Max* limit comes from the user's line or the nearest line above that sets it.
A QOS of the partition counts beside the job's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from math import ceil
from types import MappingProxyType
from typing import Final

from hpcplat.quantities import format_duration, parse_limit
from hpcplat.slurm.scheduler import Association, LiveJob, Partition, Qos, Share
from hpcplat.slurm.states import BaseState
from hpcplat.slurm.tres import parse_tres

_GPU: Final = "gres/gpu"


@dataclass(frozen=True, slots=True)
class Asked:
    """What a job asks for, all nodes together; memory in MiB, no memory: unknown."""

    user: str
    account: str
    partition: str
    qos: str = ""
    nodes: int = 1
    gpus: int = 0
    gpu_type: str = ""
    cpus: int = 1
    memory: int | None = None
    time: timedelta | None = None
    jobs: int = 1

    @property
    def tres(self) -> Mapping[str, int]:
        """Return it in Slurm's names of trackable resources."""
        counts = {"node": self.nodes, "cpu": self.cpus, _GPU: self.gpus}
        if self.gpu_type:
            counts[f"{_GPU}:{self.gpu_type}"] = self.gpus
        if self.memory is not None:
            counts["mem"] = self.memory
        return counts


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit that a request meets: whose, its name, how much of what."""

    owner: str
    name: str
    what: str
    allowed: int
    used: int
    asked: int

    @property
    def is_hopeless(self) -> bool:
        """Whether the request alone is over it: no waiting helps."""
        return self.asked > self.allowed

    @property
    def blocks(self) -> bool:
        """Whether the request is over it as things are now."""
        return self.used + self.asked > self.allowed

    def in_words(self) -> str:
        """Say the limit, its owner, and what is used of it."""
        amount = _amount(self.what, self.allowed)
        used = "" if self.is_hopeless else f", {_amount(self.what, self.used)} in use"
        asked = _amount(self.what, self.asked)
        return f"{asked} asked; {self.owner} may have {amount} ({self.name}{used})"


@dataclass(frozen=True, slots=True)
class Usage:
    """What live jobs hold, or wait with, under one name."""

    running: int = 0
    waiting: int = 0
    tres: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Book:
    """All of Slurm's limits at one moment, indexed once: a look costs no scan."""

    lines: Mapping[tuple[str, str], Association]  # by account and user
    qos: Mapping[str, Qos]
    partitions: Mapping[str, Partition]
    shares: Mapping[tuple[str, str], Share]
    by_line: Mapping[tuple[str, str], Usage]
    by_qos: Mapping[tuple[str, str], Usage]  # by QOS and user; empty user: all
    pending: Mapping[str, tuple[int, ...]]  # priorities by partition, highest first
    enforced: frozenset[str]
    qos_minutes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def chain(self, account: str, user: str) -> Iterator[Association]:
        """Yield the lines that a user's job counts under, from the user's up."""
        line = self.lines.get((account, user))
        if line is not None and user:
            yield line
        seen: set[str] = set()
        while account and account not in seen:
            seen.add(account)
            above = self.lines.get((account, ""))
            if above is None:
                return
            yield above
            account = above.parent

    def default_account(self, user: str) -> str:
        """Return the account of a user who has one only; else the empty text."""
        found = {account for account, name in self.lines if name == user}
        return found.pop() if len(found) == 1 else ""


def book_of(  # noqa: PLR0913 - the answers of as many commands
    associations: Sequence[Association],
    qos: Sequence[Qos],
    partitions: Sequence[Partition],
    shares: Sequence[Share],
    jobs: Sequence[LiveJob],
    gpu_types: Mapping[str, str],
    enforced: frozenset[str],
    qos_minutes: Mapping[str, Mapping[str, int]] = MappingProxyType({}),
) -> Book:
    """Return the book; ``gpu_types``: of each node that has one type."""
    lines = {(a.account, a.user): a for a in associations if not a.partition}
    live = [job for job in jobs if job.state.base in _LIVE]
    return Book(
        lines=lines,
        qos={each.name: each for each in qos},
        partitions={each.name: each for each in partitions},
        shares={(each.account, each.user): each for each in shares},
        by_line=_sums(live, lambda job: _line_keys(job, lines), gpu_types),
        by_qos=_sums(live, lambda job: [(job.qos, ""), (job.qos, job.user)], gpu_types),
        pending=_pending(live),
        enforced=enforced,
        qos_minutes=qos_minutes,
    )


_LIVE: Final = {BaseState.PENDING, BaseState.RUNNING, BaseState.SUSPENDED}


def met(book: Book, asked: Asked) -> list[Limit]:
    """Return the limits that the request is over, now or for ever; worst first."""
    found = _in_force(book, asked)
    over = [limit for limit in found if limit.blocks or limit.is_hopeless]
    return sorted(over, key=lambda limit: not limit.is_hopeless)


def all_limits(book: Book, account: str, user: str, qos: str) -> list[Limit]:
    """Return every limit that a user's next job would count under, with its use."""
    nothing = Asked(user, account, "", qos, nodes=0, gpus=0, cpus=0, memory=0, jobs=0)
    return _in_force(book, nothing)


def _in_force(book: Book, asked: Asked) -> list[Limit]:
    """Return the limits that count.

    Where a limit is first defined, of the QOS and then the accounts, it holds (Slurm's
    page on resource limits); only accounts have it at each of their levels.
    """
    found: dict[tuple[str, str], Limit] = {}
    for limit in _of_qos(book, asked):
        found.setdefault((limit.name, limit.what), limit)
    lines = _of_lines(book, asked)
    return [
        *(limit for limit in lines if (limit.name, limit.what) not in found),
        *found.values(),
    ]


def is_member(book: Book, asked: Asked) -> bool:
    """Whether Slurm lets the user into the account (always, if it does not look)."""
    if not book.enforced & {"associations", "limits", "qos", "safe"}:
        return True
    return not asked.account or (asked.account, asked.user) in book.lines


def qos_allowed(book: Book, asked: Asked) -> tuple[str, ...]:
    """Return the QOS that the job may choose from; empty if there is no rule."""
    for line in book.chain(asked.account, asked.user):
        if line.qos:
            return line.qos
    return ()


def effective_qos(book: Book, asked: Asked) -> str:
    """Return the job's QOS: the one asked for, or the default of its line."""
    if asked.qos:
        return asked.qos
    for line in book.chain(asked.account, asked.user):
        if line.default_qos:
            return line.default_qos
    return "normal" if "normal" in book.qos else ""


def fair_share(book: Book, account: str, user: str) -> float | None:
    """Return the fair-share factor of a user in an account, 0 to 1."""
    share = book.shares.get((account, user))
    return share.fair_share if share is not None else None


def place(book: Book, partition: str, priority: int | None = None) -> int:
    """Return the place in the queue of a partition; without a priority, the last."""
    waiting = book.pending.get(partition, ())
    if priority is None:
        return len(waiting) + 1
    return sum(other > priority for other in waiting) + 1


def _of_lines(book: Book, asked: Asked) -> Iterator[Limit]:
    set_already: set[str] = set()
    for line in book.chain(asked.account, asked.user):
        owner = (
            f"{line.user} in account {line.account}"
            if line.user
            else f"account {line.account}"
        )
        usage = book.by_line.get((line.account, line.user), Usage())
        yield from _group(line.limits, owner, usage, asked)
        share = book.shares.get((line.account, line.user))
        spent = share.used_minutes if share is not None else {}
        yield from _minutes(line.limits, owner, spent, asked, book.enforced)
        own = book.by_line.get((asked.account, asked.user), Usage())
        for name in ("MaxTRES", "MaxWall", "MaxJobs", "MaxSubmit"):
            if name in line.limits and name not in set_already:
                set_already.add(name)
                yield from _single(name, line.limits[name], owner, own, asked)


def _of_qos(book: Book, asked: Asked) -> Iterator[Limit]:
    for qos in _qos_in_order(book, asked):
        name = qos.name
        owner = f"QOS {name}"
        everyone = book.by_qos.get((name, ""), Usage())
        own = book.by_qos.get((name, asked.user), Usage())
        yield from _group(qos.limits, owner, everyone, asked)
        spent = book.qos_minutes.get(name)
        if spent is not None or asked.time is not None:  # Slurm may hide what is spent
            yield from _minutes(qos.limits, owner, spent or {}, asked, book.enforced)
        for limit in ("MaxTRES", "MaxWall"):
            if limit in qos.limits:
                yield from _single(limit, qos.limits[limit], owner, own, asked)
        yield from _per_user(qos, own, asked)


def _qos_in_order(book: Book, asked: Asked) -> list[Qos]:
    """Return the partition's QOS ahead of the job's, unless that one goes over it."""
    partition = book.partitions.get(asked.partition)
    names = [partition.qos if partition else "", effective_qos(book, asked)]
    found = [book.qos[name] for name in dict.fromkeys(names) if name in book.qos]
    return sorted(found, key=lambda qos: "OverPartQOS" not in qos.flags)


def _per_user(qos: Qos, own: Usage, asked: Asked) -> Iterator[Limit]:
    each = f"each user of QOS {qos.name}"
    limits = qos.limits
    if "MaxTRESPU" in limits:
        yield from _counts("MaxTRESPU", limits["MaxTRESPU"], each, own.tres, asked)
    if "MaxJobsPU" in limits:
        yield from _single("MaxJobs", limits["MaxJobsPU"], each, own, asked)
    if "MaxSubmitPU" in limits:
        yield from _single("MaxSubmit", limits["MaxSubmitPU"], each, own, asked)


def _group(
    limits: Mapping[str, str],
    owner: str,
    usage: Usage,
    asked: Asked,
) -> Iterator[Limit]:
    if "GrpTRES" in limits:
        yield from _counts("GrpTRES", limits["GrpTRES"], owner, usage.tres, asked)
    for name, used in (
        ("GrpJobs", usage.running),
        ("GrpSubmit", usage.running + usage.waiting),
    ):
        if name in limits:
            yield Limit(owner, name, "jobs", int(limits[name]), used, asked.jobs)


def _minutes(
    limits: Mapping[str, str],
    owner: str,
    spent: Mapping[str, int],
    asked: Asked,
    enforced: frozenset[str],
) -> Iterator[Limit]:
    """Yield the limits on minutes of a resource in the site's period of decay.

    Without "safe", Slurm starts a job whose end would be over them: only what is spent
    already counts.
    """
    minutes = 1
    if "safe" in enforced and asked.time is not None:
        minutes = ceil(asked.time.total_seconds() / 60)
    for name, allowed in parse_tres(limits.get("GrpTRESMins", "")).items():
        wanted = asked.tres.get(name, 0) * minutes
        wanted = min(wanted, 1) if "safe" not in enforced else wanted
        used = spent.get(name, 0)
        yield Limit(owner, "GrpTRESMins", f"{name} minutes", allowed, used, wanted)


def _single(
    name: str, value: str, owner: str, usage: Usage, asked: Asked
) -> Iterator[Limit]:
    match name:
        case "MaxTRES":  # of each job, whatever else runs
            yield from _counts(name, value, owner, {}, asked)
        case "MaxWall":
            longest = parse_limit(value)
            if longest is not None:
                wanted = asked.time or timedelta(0)
                seconds = int(longest.total_seconds())
                ask = int(wanted.total_seconds())
                yield Limit(owner, name, "time", seconds, 0, ask)
        case "MaxJobs":
            # An array's tasks take turns: one at a time is enough to go on.
            one = min(asked.jobs, 1)
            yield Limit(owner, name, "jobs", int(value), usage.running, one)
        case _:
            used = usage.running + usage.waiting
            yield Limit(owner, name, "jobs", int(value), used, asked.jobs)


def _counts(
    name: str, value: str, owner: str, used: Mapping[str, int], asked: Asked
) -> Iterator[Limit]:
    for what, allowed in parse_tres(value).items():
        yield Limit(
            owner, name, what, allowed, used.get(what, 0), asked.tres.get(what, 0)
        )


def _sums(
    jobs: Iterable[LiveJob],
    keys: Callable[[LiveJob], Iterable[tuple[str, str]]],
    gpu_types: Mapping[str, str],
) -> Mapping[tuple[str, str], Usage]:
    running: dict[tuple[str, str], int] = {}
    waiting: dict[tuple[str, str], int] = {}
    tres: dict[tuple[str, str], dict[str, int]] = {}
    for job in jobs:
        is_waiting = job.state.base is BaseState.PENDING
        count = waiting if is_waiting else running
        held = {} if is_waiting else _tres_of(job, gpu_types)
        for key in keys(job):
            count[key] = count.get(key, 0) + 1
            total = tres.setdefault(key, {})
            for name, number in held.items():
                total[name] = total.get(name, 0) + number
    every = running.keys() | waiting.keys()
    return {
        key: Usage(running.get(key, 0), waiting.get(key, 0), tres.get(key, {}))
        for key in every
    }


def _tres_of(job: LiveJob, gpu_types: Mapping[str, str]) -> dict[str, int]:
    held = {"cpu": job.cpus, "node": job.node_count, _GPU: job.gpus}
    kind = gpu_types.get(job.nodes[0]) if job.nodes and job.gpus else None
    return held | ({f"{_GPU}:{kind}": job.gpus} if kind else {})


def _line_keys(
    job: LiveJob, lines: Mapping[tuple[str, str], Association]
) -> list[tuple[str, str]]:
    keys = [(job.account, job.user)]
    account = job.account
    while account and (account, "") not in keys:
        keys.append((account, ""))
        line = lines.get((account, ""))
        account = line.parent if line is not None else ""
    return keys


def _pending(jobs: Iterable[LiveJob]) -> Mapping[str, tuple[int, ...]]:
    found: dict[str, list[int]] = {}
    for job in jobs:
        if job.state.base is BaseState.PENDING:
            for name in job.partition.split(","):
                found.setdefault(name, []).append(job.priority)
    return {name: tuple(sorted(all_, reverse=True)) for name, all_ in found.items()}


def _amount(what: str, number: int) -> str:
    match what:
        case "time":
            return format_duration(timedelta(seconds=number))
        case "mem":
            return f"{number} MiB of memory"
        case "jobs" | "cpu" | "node" | "gres/gpu":
            words = {"jobs": "job", "cpu": "CPU", "node": "node", "gres/gpu": "GPU"}
            return f"{number} {words[what]}{'' if number == 1 else 's'}"
    if what.startswith("gres/gpu:"):
        kind = what.removeprefix("gres/gpu:")
        return f"{number} {kind} GPU{'' if number == 1 else 's'}"
    return f"{number} {what}"
