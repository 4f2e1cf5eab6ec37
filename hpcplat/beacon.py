"""The beacon of an attempt: a small file by which the service sees that it lives.

The coordinator on the batch host writes it every second into the run folder. Slurm
itself may take minutes to notice that this node died.
"""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from hpcplat.foreign import read_object


@dataclass(frozen=True, slots=True)
class Beacon:
    """An attempt lives: a number that grows, where, and what it has lost.

    ``job`` is its address in Slurm, ``step`` the newest step that all ranks have done,
    ``usual`` how long one takes (seconds); ``count`` is a time in milliseconds.
    ``lost`` are nodes that are gone. ``recovers``: the job may be put into the queue
    again. Only a change tells of life: clocks of other machines may differ.
    ``cut_off``: an agent on another node lost touch with the coordinator since then.
    """

    count: int
    attempt: int
    job: str
    host: str
    step: int
    usual: float = 0.0
    lost: tuple[str, ...] = ()
    recovers: bool = False
    cut_off: bool = False


def write(path: Path, beacon: Beacon) -> None:
    """Write it aside and rename it; not synced to disk: an old one does no harm."""
    aside = path.with_name(f".{path.name}.{platform.node()}.{os.getpid()}")
    aside.write_text(json.dumps(asdict(beacon)), encoding="utf-8")
    aside.replace(path)


def mark_cut_off(path: Path) -> None:
    """Say that the coordinator can't be reached; its next beacon takes that back.

    Raises OSError where the file can't be read or written.
    """
    newest = parse(path.read_bytes())
    if newest is not None and not newest.cut_off:
        write(path, replace(newest, cut_off=True))


def parse(content: bytes) -> Beacon | None:
    """Return the beacon that a file holds; None if it holds none, whoever wrote it."""
    values = read_object(content) or {}
    known = {field.name for field in fields(Beacon)}
    mine = {name: value for name, value in values.items() if name in known}
    try:
        found = Beacon(**{**mine, "lost": tuple(mine.get("lost", ()))})
    except TypeError:
        return None
    return found if _is_sound(found) else None


def _is_sound(found: Beacon) -> bool:
    """Tell whether each value is of its type: a person's program may write the file."""
    return (
        all(type(n) is int for n in (found.count, found.attempt, found.step))
        and isinstance(found.usual, int | float)
        and all(isinstance(name, str) for name in (found.job, found.host, *found.lost))
        and all(isinstance(is_so, bool) for is_so in (found.recovers, found.cut_off))
    )
