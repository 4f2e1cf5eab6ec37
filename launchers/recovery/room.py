"""How much memory this node can still give, and whether copies of the state fit in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from launchers.cgroups import memory_groups

# Of each rank's state on a node: two slots of its own, two of another's.
COPIES: Final = 4
SPARED: Final = 0.05  # of what is free: others allocate too
V1_FILES: Final = ("memory.limit_in_bytes", "memory.usage_in_bytes")
V2_FILES: Final = ("memory.max", "memory.current")
UNLIMITED: Final = 1 << 60  # cgroup v1 says "no limit" with a number near 2**63


@dataclass(frozen=True, slots=True)
class Room:
    """What all ranks of a node need for their copies, and what is free there, in bytes."""

    needed: int
    free: int

    @property
    def suffices(self) -> bool:
        """Whether copies fit, with something to spare."""
        return self.needed <= self.free * (1 - SPARED)


def room_for(size: int, ranks_here: int, root: Path = Path("/")) -> Room:
    """Return the room for copies of ``size`` bytes of each rank of this node."""
    return Room(COPIES * size * ranks_here, free_memory(root))


def free_memory(root: Path = Path("/")) -> int:
    """Return the bytes that can still be had: the kernel's word, and the cgroups' limits.

    By proc(5) (MemAvailable) and the memory controller of cgroup v2 or v1, of this
    process's group and all above it.
    """
    return min([_available(root), *_left_in_groups(root)])


def _available(root: Path) -> int:
    lines = (root / "proc/meminfo").read_text(encoding="ascii").splitlines()
    line = next(line for line in lines if line.startswith("MemAvailable:"))
    return int(line.split()[1]) * 1024


def _left_in_groups(root: Path) -> Iterator[int]:
    for group in memory_groups(root):
        limit, used = V2_FILES if group.is_v2 else V1_FILES
        for folder in group.with_those_above():
            most, now = _number(folder / limit), _number(folder / used)
            if most is not None and now is not None and most < UNLIMITED:
                yield max(most - now, 0)


def _number(path: Path) -> int | None:
    """Return the number in a file; None where there is none ("max", no such group)."""
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
