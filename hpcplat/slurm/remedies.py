"""What there is to choose from, for the message after a refusal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from hpcplat.slurm.refusals import Topic
from hpcplat.slurm.scheduler import Scheduler, Submission

_MOST: Final = 12


def choice(scheduler: Scheduler, topic: Topic, submission: Submission) -> str:
    """Return a sentence that names the partitions, accounts, QOS or GPUs there are."""
    match topic:
        case Topic.PARTITION:
            names = [each.name for each in scheduler.partitions()]
            return _sentence("Partitions", names)
        case Topic.QOS:
            return _sentence("QOS", [each.name for each in scheduler.qos()])
        case Topic.ACCOUNT:
            return _accounts(scheduler, submission)
        case Topic.NODES:
            return _nodes(scheduler)


def _accounts(scheduler: Scheduler, submission: Submission) -> str:
    """Name the user's accounts if the user is known, else all of them."""
    associations = scheduler.associations()
    if submission.user is None:
        return _sentence("Accounts", [each.account for each in associations])
    own = [each.account for each in associations if each.user == submission.user]
    if not own:
        return f"{submission.user} has no account here; ask an administrator for one."
    return _sentence(f"Accounts of {submission.user}", own)


def _nodes(scheduler: Scheduler) -> str:
    kinds: dict[str, list[str]] = {}
    for node in scheduler.nodes():
        gpus = [f"gpu:{kind}:{n}".replace("::", ":") for kind, n in node.gpus.items()]
        what = ", ".join([*gpus, f"{node.cpus} CPUs", f"{node.memory_mib} MiB"])
        kinds.setdefault(what, []).append(node.name)
    return _sentence("Nodes", [f"{len(on)} with {what}" for what, on in kinds.items()])


def _sentence(what: str, names: Iterable[str]) -> str:
    told = sorted(set(names))
    more = f" and {len(told) - _MOST} more" if len(told) > _MOST else ""
    return f"{what}: {'; '.join(told[:_MOST])}{more}."
