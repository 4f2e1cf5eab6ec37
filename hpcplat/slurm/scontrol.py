"""scontrol: the controller's settings and partitions, and orders to it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from hpcplat.errors import InvalidError
from hpcplat.quantities import parse_limit
from hpcplat.slurm.addresses import checked
from hpcplat.slurm.answers import (
    UnreadableError,
    clip,
    names,
    parse_number,
    read,
    text_or_blank,
)
from hpcplat.slurm.hostlist import expand
from hpcplat.slurm.scheduler import Partition

_SETTING: Final = re.compile(r"(?P<name>[A-Za-z_][\w/() \-]*?)\s*=\s?(?P<value>.*)")
START_PAUSE: Final = 2  # seconds, see argv_start_now
_NODE_STATES: Final = ("down", "drain", "resume")


def argv_ping() -> list[str]:
    """Return the arguments that ask whether the controllers are up."""
    return ["scontrol", "ping"]


def parse_ping(stdout: str) -> bool:
    """Whether the primary controller, or a backup, says that it is up."""
    return any(
        line.startswith("Slurmctld") and line.rstrip().endswith(" UP")
        for line in stdout.splitlines()
    )


def argv_config() -> list[str]:
    """Return the arguments that print the controller's settings."""
    return ["scontrol", "show", "config"]


def parse_config(stdout: str) -> Mapping[str, str]:
    """Return names and values; ``(null)`` becomes the empty text.

    Raises UnreadableError for an answer without SLURM_VERSION and ClusterName.
    """
    settings: dict[str, str] = {}
    for line in stdout.splitlines():
        match = _SETTING.fullmatch(line.rstrip())
        if match is not None:
            value = "" if match["value"] == "(null)" else match["value"]
            settings.setdefault(match["name"], value)
    if not {"SLURM_VERSION", "ClusterName"} <= settings.keys():
        raise UnreadableError(f"scontrol show config answered {clip(stdout)}.")
    return settings


def argv_partitions() -> list[str]:
    """Return the arguments that print every partition, hidden ones too."""
    return ["scontrol", "--all", "--oneliner", "show", "partition"]


def parse_partitions(stdout: str) -> tuple[Partition, ...]:
    """Return the partitions. Raises UnreadableError unless every line can be read."""
    return tuple(
        read(_partition, line.split()) for line in stdout.splitlines() if line.strip()
    )


def _partition(words: list[str]) -> Partition:
    field = dict(word.split("=", 1) for word in words)
    if not {"PartitionName", "State", "Default", "MaxTime"} <= field.keys():
        raise UnreadableError(f"{clip(' '.join(words))} is not a partition.")
    return Partition(
        name=field["PartitionName"],
        is_default=field["Default"] == "YES",
        state=field["State"],
        nodes=expand(text_or_blank(field.get("Nodes", ""))),
        max_time=parse_limit(field["MaxTime"]),
        default_time=parse_limit(field.get("DefaultTime", "NONE")),
        max_nodes=parse_number(field.get("MaxNodes", "UNLIMITED")),
        allowed_accounts=_unless_all(field.get("AllowAccounts", "ALL")),
        allowed_qos=_unless_all(field.get("AllowQos", "ALL")),
        denied_accounts=names(field.get("DenyAccounts", "")),
        qos=text_or_blank(field.get("QoS", "")),
    )


def _unless_all(field: str) -> tuple[str, ...] | None:
    return None if field in ("ALL", "") else names(field)


def argv_requeue(address: str) -> list[str]:
    """Return the arguments that put a job back into the queue.

    For an array's task give ``array_task``: the bare id is the whole array.
    """
    return ["scontrol", "requeue", checked(address)]


def argv_hold(address: str) -> list[str]:
    """Return the arguments that keep a pending job from starting."""
    return ["scontrol", "hold", checked(address)]


def argv_release(address: str) -> list[str]:
    """Return the arguments that let a held job start."""
    return ["scontrol", "release", checked(address)]


def argv_start_now(address: str, pause: int = START_PAUSE) -> list[str]:
    """Return the arguments that let a pending job begin, in some seconds.

    Not at once: a node that has just been told to kill the job refuses to launch it
    again within the same second ("Job credential revoked"), and Slurm then ends the
    job as FAILED. Clocks of nodes differ, hence two. Where that is past, no pause is
    best: Slurm then looks at its queue at once, else when its next turn comes.
    """
    begin = f"now+{pause}" if pause else "now"
    return ["scontrol", "update", f"jobid={checked(address)}", f"StartTime={begin}"]


def argv_node_state(node: str, state: str, reason: str) -> list[str]:
    """Return the arguments that set a node down, drain or resume.

    Slurm wants a reason for all but resume. Raises InvalidError for another state.
    """
    wanted = state.lower()
    if wanted not in _NODE_STATES or len(expand(node)) != 1:
        raise InvalidError(
            f"{node[:60]!r} can't be set {state[:20]!r}.",
            f"Name one node, and one of {', '.join(_NODE_STATES)}.",
        )
    words = ["scontrol", "update", f"nodename={node}", f"state={wanted}"]
    if wanted == "resume":
        return words
    return [*words, f"reason={' '.join(reason.split()) or 'hpcplat'}"]
