"""The control groups that bound this process's memory (proc(5), cgroups(7))."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class MemoryGroup:
    """A process's group under a memory controller: cgroup v2's, or v1's own.

    ``top`` is where the controller's groups are mounted.
    """

    folder: Path
    top: Path
    is_v2: bool

    def with_those_above(self) -> Iterator[Path]:
        """Yield the group's folder, then those of the groups that it is in."""
        for folder in (self.folder, *self.folder.parents):
            if folder.is_relative_to(self.top):
                yield folder


def memory_groups(root: Path = Path("/")) -> Iterator[MemoryGroup]:
    """Yield the groups of this process; OSError where the kernel has none at all."""
    mounts = root / "sys/fs/cgroup"
    for line in (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines():
        _, controllers, group = line.split(":", 2)
        is_v2 = not controllers
        if is_v2 or "memory" in controllers.split(","):
            top = mounts if is_v2 else mounts / "memory"
            yield MemoryGroup(top / group.lstrip("/"), top, is_v2)
