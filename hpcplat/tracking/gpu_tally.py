"""How often a node's GPUs were found idle: two counts, kept beside an attempt's logs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from hpcplat.files import write_whole
from hpcplat.foreign import read_object

_LOAD: Final = re.compile(r"system/gpu\d+_percent")  # machine.Machine's name


@dataclass(frozen=True, slots=True)
class GpuTally:
    """Samples of GPUs in an attempt, and those of them that found 0 %."""

    samples: int = 0
    idle: int = 0

    def and_of(self, metrics: Mapping[str, float]) -> GpuTally:
        """Return it with the GPUs of one look at the node; those that say nothing don't count."""
        loads = [load for name, load in metrics.items() if _LOAD.fullmatch(name)]
        idle = sum(load == 0 for load in loads)
        return GpuTally(self.samples + len(loads), self.idle + idle)

    def write(self, path: Path) -> None:
        """Write it whole. Raises OSError where the folder is gone or full."""
        write_whole(path, json.dumps(asdict(self)), durable=False)


def tally_of(content: bytes) -> GpuTally:
    """Return what was written; nothing at all for what is no tally."""
    found = read_object(content) or {}
    samples, idle = found.get("samples"), found.get("idle")
    if type(samples) is not int or type(idle) is not int:
        return GpuTally()
    return GpuTally(samples, idle) if 0 <= idle <= samples else GpuTally()


def idle_share(tallies: Iterable[GpuTally]) -> float | None:
    """Return which share of all samples was idle; None where there is no sample."""
    known = tuple(tallies)
    samples = sum(each.samples for each in known)
    return sum(each.idle for each in known) / samples if samples else None
