"""What a call of sbatch is told before it runs: no, where its limits never let it run.

Slurm takes such a job, and lets it wait for ever. All that Slurm refuses itself is left to
its own words, and what can't be told for certain is let pass.
"""

from __future__ import annotations

from contextlib import suppress

from hpcplat.errors import ForbiddenError, InvalidError
from hpcplat.sbatchline.commandline import parse
from hpcplat.sbatchline.demand import Demand, demand
from hpcplat.sbatchline.directives import parse_script
from hpcplat.sbatchline.precedence import Request, from_environment, request
from server import quotas
from server.adoption import SbatchCall
from server.auth import Principal
from server.quotas import Asked, Book, Limit
from server.service import Service


def refuse_over_quota(service: Service, principal: Principal, call: SbatchCall) -> None:
    """Raise ForbiddenError for a job that no waiting brings under its limits."""
    asked = _request(call)
    book = service.quota_book()
    if asked is None or book is None:
        return
    limits = [
        _hopeless(book, _asked(asked, principal.name, partition, book))
        for partition in _partitions(service, asked)
    ]
    # Slurm starts a job in whichever of its partitions lets it.
    if limits and all(limits):
        least = min(limits, key=len)
        said = "; ".join(limit.in_words() for limit in least)
        raise ForbiddenError(
            f"{said}: it can never run.",
            "Ask for less, or ask whoever manages the quota (hpcplat quota).",
        )


def _request(call: SbatchCall) -> Request | None:
    """Return what counts; None where that can't be told, or is another cluster's."""
    with suppress(InvalidError):
        line = parse(call.words)
        script = parse_script(call.script)
        asked = request(line, script, from_environment(call.environment))
        is_plain = len(asked.components) == 1 and not asked.has("clusters")
        # An option of a site's plugin may take the word after it, or may not.
        return asked if is_plain and not line.strangers else None
    return None


def _partitions(service: Service, asked: Request) -> list[str]:
    facts = service.site.facts()
    default = [each.name for each in facts.partitions if each.is_default]
    named = asked.value("partition")
    return named.split(",") if named else default


def _asked(asked: Request, user: str, partition: str, book: Book) -> Asked:
    least: Demand = demand(asked)
    return Asked(
        user=user,
        account=asked.value("account") or book.default_account(user),
        partition=partition,
        qos=asked.value("qos") or "",
        nodes=least.nodes,
        gpus=least.gpus,
        gpu_type=least.gpu_type,
        cpus=least.cpus,
        memory=least.memory,
        time=least.time,
        jobs=least.tasks_of_array,
    )


def _hopeless(book: Book, asked: Asked) -> list[Limit]:
    # What is over a limit on submitted jobs, sbatch itself is told.
    found = quotas.met(book, asked)
    return [each for each in found if each.is_hopeless and "Submit" not in each.name]
