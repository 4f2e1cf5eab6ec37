"""Reading metrics files, whole or as they grow."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

from hpcplat.tracking.layout import MetricsFile, metrics_files
from hpcplat.tracking.record import Numbers, Record, decode

CHUNK = 1024 * 1024  # bytes
BLOCK = 4096  # bytes that are looked through line by line
MAX_LINE = 16 * 1024 * 1024  # bytes; what is longer was never written by us


class Chunk(NamedTuple):
    """Whole lines from a file: records, the offset after them, lines damaged."""

    records: list[Record]
    offset: int
    damaged: int


class Entry(NamedTuple):
    """A record and the file that it stands in."""

    file: MetricsFile
    record: Record


def read_chunk(
    path: Path, offset: int = 0, size: int = CHUNK, *, ended: bool = False
) -> Chunk:
    """Return the records of whole lines from ``offset`` on, some ``size`` bytes.

    A last line without its end, or a hole (NULs: a network file system that has not
    caught up), is left for the next call, unless the writer has ``ended``: then both
    are damage and passed over. The same ``offset`` back means that there is no more as
    yet. OSError if the file cannot be read.
    """
    with path.open("rb") as file:
        file.seek(offset)
        data = _lines(file, size, ended)
    lines = data.split(b"\n")
    last = lines.pop()
    if (ended and last) or len(last) >= MAX_LINE:
        lines.append(last)
        last = b""
    records = [decode(line) for line in lines]
    kept = [record for record in records if record is not None]
    return Chunk(kept, offset + len(data) - len(last), len(records) - len(kept))


def read_all(path: Path) -> Chunk:
    """Return all records of a file; a torn last line counts as damaged."""
    records: list[Record] = []
    offset = damaged = 0
    while True:
        chunk = read_chunk(path, offset, ended=True)
        records += chunk.records
        damaged += chunk.damaged
        if chunk.offset == offset:
            return Chunk(records, offset, damaged)
        offset = chunk.offset


def read_run(run: Path) -> Iterator[Entry]:
    """Yield all records of a run folder by attempt, source and writer."""
    for file in metrics_files(run):
        for record in read_all(file.path).records:
            yield Entry(file, record)


def newest(path: Path, most: int = 1) -> tuple[Numbers, ...]:
    """Return the last numbers of a file, the newest first; decodes few lines at its end."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        size = BLOCK
        while True:
            begin = max(end - size, 0)
            file.seek(begin)
            # A line that is cut at the block's begin, or not whole yet, is no record.
            lines = reversed(file.read(end - begin).splitlines())
            numbers = (each for each in map(decode, lines) if isinstance(each, Numbers))
            found = tuple(islice(numbers, most))
            if begin == 0 or len(found) == most:
                return found
            size *= 4


def newest_before(path: Path, time: float) -> Numbers | None:
    """Return the last numbers of a file that were logged by ``time`` (Unix, seconds).

    Times never go back within a file: this halves the file, and reads little of it.
    """
    with path.open("rb") as file:
        low, high = 0, file.seek(0, os.SEEK_END)
        middle = max(high - BLOCK, 0)  # most ask for the end
        while high - low > BLOCK:
            number = next(_numbers_from(file, middle), None)
            if number is None or number.time > time:
                high = middle
            else:
                low = middle
            middle = (low + high) // 2
        found = None
        for number in _numbers_from(file, low):
            if number.time > time:
                break
            found = number
        return found


def _numbers_from(file: BinaryIO, offset: int) -> Iterator[Numbers]:
    """Yield the numbers in lines that begin at ``offset`` or after."""
    file.seek(max(offset - 1, 0))
    if offset:
        file.readline()  # the rest of a line that began before
    for line in file:
        record = decode(line)
        if isinstance(record, Numbers):
            yield record


def _lines(file: BinaryIO, size: int, ended: bool) -> bytes:
    """Read on until there is a line's end, a hole, the end of the file or too much."""
    data = b""
    while b"\n" not in data[-size:] and len(data) < MAX_LINE:
        more = file.read(size)
        settled = more if ended else more.partition(b"\0")[0]
        data += settled
        if not more or len(settled) < len(more):
            break
    whole = data.rfind(b"\n") + 1
    return data[:whole] if whole else data
