"""Job arrays: ``0-999%50`` and what becomes of it above Slurm's MaxArraySize."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, Field

from hpcplat.errors import InvalidError
from hpcplat.jobs.fields import refuse

# Small enough that every index can be listed, and far above what sites allow by default
# (MaxArraySize 1001).
MOST_TASKS: Final = 1_000_000

_ARRAY: Final = re.compile(r"(?P<indices>[0-9,:-]+)(?:%(?P<throttle>[0-9]{1,7}))?")
_RANGE: Final = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?")


@dataclass(frozen=True, slots=True)
class ArrayChunk:
    """A part of an array that Slurm takes: its own indices, and what to add to them.

    ``option`` is the value of ``--array``; the task's index is Slurm's plus ``offset``.
    """

    option: str
    offset: int
    tasks: int


@dataclass(frozen=True, slots=True)
class TaskArray:
    """The indices of an array, ascending, and how many tasks may run at once."""

    indices: tuple[int, ...]
    throttle: int | None = None

    def __str__(self) -> str:
        """Return it as sbatch spells it, with the shortest ranges."""
        limit = f"%{self.throttle}" if self.throttle else ""
        return _ranges(self.indices) + limit


def parse_array(text: str) -> TaskArray:
    """Return the indices of ``0-9``, ``1,3,5-7``, ``0-100:5``, ``0-999%50``.

    Raises InvalidError for anything else, a throttle of 0 or an index given twice.
    """
    match = _ARRAY.fullmatch(text.strip())
    if match is None:
        raise InvalidError(f"{text!r} is not an array.", "Write 0-999 or 1,3,5-7%2.")
    throttle = int(match["throttle"]) if match["throttle"] else None
    if throttle == 0:
        raise InvalidError("A throttle of 0 starts no task.", "Give at least %1.")
    indices: list[int] = []
    for part in match["indices"].split(","):
        indices.extend(_indices(part, MOST_TASKS - len(indices)))
    unique = tuple(sorted(set(indices)))
    if len(unique) < len(indices):
        raise InvalidError(f"{text!r} names an index twice.", "Name each index once.")
    return TaskArray(unique, throttle)


def chunks(array: TaskArray, max_array_size: int) -> tuple[ArrayChunk, ...]:
    """Return the parts in which Slurm takes the array, each with its offset.

    ``max_array_size`` is the site's MaxArraySize: the highest index is one less.
    A part holds the indices of one span of that length, so an array that fits is one
    part with offset 0. The throttle is NOT in the options of several parts: it holds
    over all of them together, and is shared out by ``shared_throttle``.
    """
    if max_array_size < 1:
        raise InvalidError("This cluster takes no job arrays.", "Submit single jobs.")
    if array.indices[-1] < max_array_size:
        return (ArrayChunk(str(array), 0, len(array.indices)),)
    parts = tuple(_spans(array.indices, max_array_size))
    limits = shared_throttle(array.throttle, [len(own) for _, own in parts])
    return tuple(
        ArrayChunk(_ranges(own) + (f"%{limit}" if limit else ""), offset, len(own))
        for (offset, own), limit in zip(parts, limits, strict=True)
    )


def shared_throttle(throttle: int | None, sizes: list[int]) -> list[int | None]:
    """Share one throttle among parts: the limits add up to it, none is below 1.

    With fewer slots than parts every part gets 1 and the parts after the first
    ``throttle`` ones must wait for an earlier one (``chained``).
    """
    if throttle is None:
        return [None] * len(sizes)
    if throttle <= len(sizes):
        return [1] * len(sizes)
    total = sum(sizes)
    limits = [max(1, throttle * size // total) for size in sizes]
    while sum(limits) > throttle:
        limits[limits.index(max(limits))] -= 1
    for place in range(throttle - sum(limits)):
        limits[place % len(limits)] += 1
    return list(limits)


def chained(count: int, throttle: int | None) -> tuple[int | None, ...]:
    """Return, for each part, the earlier part that must end before it starts.

    Only where the throttle is smaller than the number of parts (each runs one task
    at a time, and ``throttle`` parts at once keep the promise over all).
    """
    if throttle is None or throttle >= count:
        return (None,) * count
    return tuple(None if i < throttle else i - throttle for i in range(count))


def _indices(part: str, room: int) -> range:
    match = _RANGE.fullmatch(part)
    if match is None:
        raise InvalidError(f"{part!r} is not a range.", "Write 3, 0-9 or 0-100:5.")
    first, last, step = match[1], match[2] or match[1], match[3] or "1"
    found = range(int(first), int(last) + 1, max(int(step), 1))
    if int(step) < 1 or not found:
        raise InvalidError(f"{part!r} holds no index.", "Write it as low-high:step.")
    if len(found) > room:
        raise InvalidError(
            f"The array has more than {MOST_TASKS} tasks.", "Submit it in parts."
        )
    return found


def _spans(
    indices: tuple[int, ...], length: int
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield (offset, indices less the offset) so that each span fits in ``length``."""
    start = 0
    while start < len(indices):
        offset = indices[start]
        end = start
        while end < len(indices) and indices[end] - offset < length:
            end += 1
        yield offset, tuple(index - offset for index in indices[start:end])
        start = end


def _ranges(indices: tuple[int, ...]) -> str:
    """Return ascending indices in sbatch's spelling, in the fewest ranges it finds."""
    parts, start = [], 0
    while start < len(indices):
        end = _run_end(indices, start)
        parts.append(_range(indices[start:end]))
        start = end
    return ",".join(parts)


def _run_end(indices: tuple[int, ...], start: int) -> int:
    """Return where the evenly spaced run from ``start`` ends; pairs must be adjacent."""
    end = start + 1
    if end == len(indices):
        return end
    step = indices[end] - indices[start]
    while end < len(indices) and indices[end] - indices[end - 1] == step:
        end += 1
    return end if step == 1 or end - start > 2 else start + 1


def _range(run: tuple[int, ...]) -> str:
    if len(run) == 1:
        return str(run[0])
    step = run[1] - run[0]
    return f"{run[0]}-{run[-1]}" + (f":{step}" if step > 1 else "")


def _checked(text: str) -> str:
    try:
        parse_array(text)
    except InvalidError as error:
        refuse(error.what, error.remedy)
    return text


ArrayText = Annotated[
    str,
    Field(max_length=10_000, examples=["0-999%50"]),
    BeforeValidator(lambda value: str(value) if type(value) is int else value),
    AfterValidator(_checked),
]
