"""scontrol show assoc_mgr: what the controller has counted against QOS limits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from hpcplat.slurm.answers import UnreadableError, clip

_HEAD: Final = "Current Association Manager state"
_QOS: Final = re.compile(r"QOS=(?P<name>\S+)\(\d+\)")
_MINUTES: Final = re.compile(r"\s+GrpTRESMins=(?P<counts>\S*)")
# A resource, its limit (N: none), and in parentheses what is used of it.
_COUNT: Final = re.compile(r"(?P<name>[A-Za-z_][\w.:/\-]*)=(?:N|\d+)\((?P<used>\d+)\)")


def argv_qos() -> list[str]:
    """Return the arguments that print every QOS with its use."""
    return ["scontrol", "show", "assoc_mgr", "flags=qos"]


def parse_qos_minutes(stdout: str) -> Mapping[str, Mapping[str, int]]:
    """Return by QOS the minutes of each resource that GrpTRESMins is held against.

    Those who may not see usage (PrivateData) get no QOS. Raises UnreadableError.
    """
    if _HEAD not in stdout:
        raise UnreadableError(f"scontrol gave no association manager: {clip(stdout)}.")
    found: dict[str, Mapping[str, int]] = {}
    name = ""
    for line in stdout.splitlines():
        qos, minutes = _QOS.fullmatch(line), _MINUTES.fullmatch(line)
        if qos:
            name = qos["name"]
        elif minutes and name:
            found[name] = _counts(minutes["counts"])
    return found


def _counts(text: str) -> Mapping[str, int]:
    pairs = [_COUNT.fullmatch(part) for part in text.split(",") if part]
    if None in pairs:
        raise UnreadableError(f"{clip(text)} is not what a QOS has used.")
    return {pair["name"]: int(pair["used"]) for pair in pairs if pair}
