"""What a local cluster should be: its nodes, GPUs, names and folder."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import platformdirs

from hpcplat.errors import InvalidError

MOST_NODES = 100
MOST_GPUS = 64
# Lines of slurm.conf that follow from the rest of the spec.
OWN_LINE = re.compile(
    "ClusterName|Slurmctld(Host|Port|PidFile|LogFile)|Slurmd(SpoolDir|PidFile|LogFile)"
    "|Slurmd?User|StateSaveLocation|Auth[A-Za-z]+|Accounting[A-Za-z]+|GresTypes"
    "|NodeName|PartitionName"
)
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_GPU_TYPE = re.compile(r"[a-z][a-z0-9_]{0,31}")
_GROUP = re.compile(r"(?P<count>\d+)(:(?P<type>[a-z][a-z0-9_]*?)(x(?P<gpus>\d+))?)?")


def _spelled(what: str, value: str, pattern: re.Pattern[str]) -> None:
    if not pattern.fullmatch(value):
        raise InvalidError(
            f"{what} is {value!r}.",
            "Use a lower-case letter, then up to 31 lower-case letters or digits.",
        )


def _within(what: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise InvalidError(
            f"{what} is {value}.", f"It must lie between {least} and {most}."
        )


def _settable(settings: Mapping[str, str]) -> None:
    for name, value in settings.items():
        if not re.fullmatch(r"[A-Za-z]+", name) or not re.fullmatch(r"[ -~]+", value):
            raise InvalidError(
                f"{name!r}={value!r} is not a line of slurm.conf.",
                "Write Name=value, such as SlurmdTimeout=30.",
            )
        if OWN_LINE.fullmatch(name):
            raise InvalidError(
                f"{name} is not yours to set.",
                "It follows from the cluster's other options.",
            )


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """A number of nodes that are alike: how many, and the GPUs of each."""

    count: int
    gpu_type: str = "h100"
    gpus: int = 4

    def __post_init__(self) -> None:
        _within("The number of nodes", self.count, 1, MOST_NODES)
        _within("The number of GPUs per node", self.gpus, 0, MOST_GPUS)
        _spelled("The GPU type", self.gpu_type, _GPU_TYPE)


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """One node of the cluster to be: ``gpus`` of type ``gpu_type``; spare or not."""

    name: str
    gpu_type: str
    gpus: int
    is_spare: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """A local cluster as asked for; refused here if it cannot be right.

    Nodes are named n1, n2, …; the spares come last and are like the first group.
    ``folder`` holds all of it (default: ``default_folder(name)``). ``settings`` are
    slurm.conf lines that replace the defaults (``{"SlurmdTimeout": "5"}``).
    ``requeue_delay`` is how many seconds a requeued job waits (Slurm's default: 120).
    ``root`` is a change-root folder with another Slurm (see hpcplat.cluster.roots).
    """

    name: str = "local"
    folder: Path = Path()
    groups: tuple[NodeGroup, ...] = (NodeGroup(4),)
    spares: int = 1
    partition: str = "gpu"
    account: str = "lab"
    cpus_per_node: int = 16
    memory_mib_per_node: int = 65536
    settings: Mapping[str, str] = field(default_factory=dict)
    requeue_delay: int = 120
    root: Path | None = None

    def __post_init__(self) -> None:
        _spelled("The cluster's name", self.name, _NAME)
        _spelled("The partition's name", self.partition, _NAME)
        _spelled("The account's name", self.account, _NAME)
        _within("The number of spares", self.spares, 0, MOST_NODES)
        _within("CPUs per node", self.cpus_per_node, 1, 4096)
        _within("Memory per node (MiB)", self.memory_mib_per_node, 1, 1 << 30)
        _within("The requeue delay", self.requeue_delay, 5, 3600)
        if not self.groups:
            raise InvalidError("A cluster has no nodes.", "Ask for 1 at least.")
        count = self.spares + sum(group.count for group in self.groups)
        _within("The number of nodes with spares", count, 1, MOST_NODES)
        _settable(self.settings)
        folder = self.folder if self.folder != Path() else default_folder(self.name)
        object.__setattr__(self, "folder", plain_path(folder))
        object.__setattr__(self, "settings", MappingProxyType(dict(self.settings)))

    @property
    def nodes(self) -> tuple[NodeSpec, ...]:
        """All nodes in order, spares last."""
        return tuple(
            NodeSpec(f"n{number}", group.gpu_type, group.gpus, is_spare)
            for number, (group, is_spare) in enumerate(self._places(), start=1)
        )

    def _places(self) -> Iterator[tuple[NodeGroup, bool]]:
        for group in self.groups:
            yield from ((group, False) for _ in range(group.count))
        yield from ((self.groups[0], True) for _ in range(self.spares))


def parse_groups(text: str, *, gpu_type: str, gpus: int) -> tuple[NodeGroup, ...]:
    """Read ``4`` or ``4:h100x4,2:a100x8``; what is left out is the given default.

    >>> parse_groups("2,1:a100x8", gpu_type="h100", gpus=4)[1]
    NodeGroup(count=1, gpu_type='a100', gpus=8)
    """
    return tuple(_parse_group(word, gpu_type, gpus) for word in text.split(","))


def _parse_group(word: str, gpu_type: str, gpus: int) -> NodeGroup:
    found = _GROUP.fullmatch(word.strip())
    if not found:
        raise InvalidError(
            f"{word!r} is not a group of nodes.",
            "Write a number (4) or number:type x GPUs (4:h100x4).",
        )
    return NodeGroup(
        int(found["count"]), found["type"] or gpu_type, int(found["gpus"] or gpus)
    )


def default_folder(name: str) -> Path:
    """Return where a cluster of this name lives when nobody says otherwise.

    As root a folder that other users can reach, so that their jobs run; else the
    calling user's own state folder.
    """
    home = (
        Path("/var/lib/hpcplat")
        if os.geteuid() == 0
        else platformdirs.user_state_path("hpcplat")
    )
    return home / "clusters" / name


def plain_path(path: Path) -> Path:
    """Return an absolute path that Slurm's configuration can carry, or refuse it."""
    whole = path.expanduser().absolute()
    if not re.fullmatch(r"/[A-Za-z0-9_./@+-]+", str(whole)):
        raise InvalidError(
            f"The folder {str(whole)!r} has characters that Slurm's files cannot hold.",
            "Choose one of letters, digits and ._@+- only (--folder).",
        )
    return whole.resolve()
