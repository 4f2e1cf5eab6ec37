"""Following a job's logs: where one is, what comes next, and when it is over."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from hpcplat.errors import NotFoundError
from hpcplat.runfolder import RunFolder
from server import logfiles

PIECE: Final = 64 * 1024  # bytes of a log in one message
FROM_END: Final = -1


@dataclass(frozen=True, slots=True)
class Message:
    """A server-sent event."""

    kind: str
    data: str
    id: str

    def spelled(self) -> bytes:
        """Return it as it goes over the wire.

        Data lines are split at newlines only: ``splitlines`` would also split at marks
        that SSE knows nothing of; a carriage return would end a line there.
        """
        lines = self.data.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        body = "".join(f"data: {line}\n" for line in lines)
        return f"id: {self.id}\nevent: {self.kind}\n{body}\n".encode()


@dataclass(frozen=True, slots=True)
class Followed:
    """A job as far as its logs matter."""

    folder: str
    state: str
    reason: str
    is_final: bool


@dataclass(frozen=True, slots=True)
class LogPlace:
    """Which log: of an attempt (None: the newest), a rank (None: the batch script)."""

    attempt: int | None
    rank: int | None
    task: int | None


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a reader is: the attempt (0: none yet) and the offset in its log."""

    place: LogPlace
    attempt: int
    offset: int
    tail: int | None

    def spelled(self) -> str:
        """Return it as an event's id."""
        return f"{self.attempt}:{max(self.offset, 0)}"


@dataclass(frozen=True, slots=True)
class Step:
    """What is new, where the reader is then, and whether that was all."""

    messages: tuple[Message, ...]
    cursor: Cursor
    is_end: bool


def number(last_event_id: str | None) -> int:
    """Return the number in an event's id; 0 if there is none."""
    text = last_event_id or ""
    return int(text) if text.isdecimal() and len(text) < 10 else 0


def cursor(last_event_id: str | None, place: LogPlace, tail: int | None) -> Cursor:
    """Return where to begin: after the message that was the last, or at the start."""
    attempt, _, offset = (last_event_id or "").partition(":")
    if attempt.isdecimal() and offset.isdecimal() and len(offset) < 19:
        return Cursor(place, int(attempt[:9]), int(offset), None)
    return Cursor(place, place.attempt or 0, 0, tail)


def whole(job: Followed, place: LogPlace, tail: int | None) -> str:
    """Return the end of a log as text; NotFoundError if there is none yet."""
    folder = _folder(job, place)
    attempt = place.attempt or _newest(folder)
    if attempt == 0:
        raise _no_log(job)
    root, path = Path(job.folder), _path(folder, attempt, place.rank)
    try:
        if tail is not None:
            piece = logfiles.last_lines(root, path, tail)
        else:
            piece = logfiles.read_piece(root, path, -logfiles.LARGEST_PIECE)
    except NotFoundError as error:
        raise _absent(job, folder, attempt, place) from error
    return piece.data.decode(errors="replace")


def _absent(
    job: Followed, folder: RunFolder, attempt: int, place: LogPlace
) -> NotFoundError:
    """Return the error for a log that is not there: it names those that are."""
    attempts = folder.attempts()
    if attempt not in attempts:
        return NotFoundError(
            f"There is no attempt {attempt}.", f"There are: {_listed(attempts)}."
        )
    ranks = [rank for rank, _ in folder.attempt(attempt).rank_logs()]
    if place.rank is None or not ranks:
        return _no_log(job)
    return NotFoundError(
        f"Attempt {attempt} has no log of rank {place.rank}.",
        f"There are those of: {_listed(ranks)}.",
    )


def _no_log(job: Followed) -> NotFoundError:
    if job.is_final:
        return NotFoundError(f"There is no log: the job is {job.state}. {job.reason}")
    return NotFoundError(
        f"There is no log yet: the job is {job.state}.", "Wait until it runs."
    )


def _listed(numbers: Sequence[int]) -> str:
    """Return numbers in order as ``0-3, 7``."""
    there = set(numbers)
    firsts = [number for number in numbers if number - 1 not in there]
    lasts = [number for number in numbers if number + 1 not in there]
    pairs = zip(firsts, lasts, strict=True)
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in pairs)


def step(job: Followed, at: Cursor) -> Step:
    """Return what is new since the cursor; goes on to the next attempt's log."""
    folder = _folder(job, at.place)
    newest = at.place.attempt or _newest(folder)
    if at.attempt == 0:
        if newest == 0:
            return Step((), at, job.is_final)
        at = replace(at, attempt=1 if at.tail is None else newest)
    root, path = Path(job.folder), _path(folder, at.attempt, at.place.rank)
    try:
        piece = _piece(root, path, at)
    except NotFoundError:
        piece = logfiles.Piece(b"", at.offset, at.offset, 0)
    text, used = _whole_characters(piece.data, is_last=piece.end >= piece.size)
    after = replace(at, offset=piece.offset + used, tail=None)
    if text:
        return Step((Message("log", text, after.spelled()),), after, is_end=False)
    if at.attempt < newest:
        return Step((), replace(after, attempt=at.attempt + 1, offset=0), is_end=False)
    return Step((), after, job.is_final)


def _piece(root: Path, path: Path, at: Cursor) -> logfiles.Piece:
    if at.tail is not None:
        return logfiles.last_lines(root, path, at.tail, PIECE)
    return logfiles.read_piece(root, path, at.offset, PIECE)


def _whole_characters(data: bytes, *, is_last: bool) -> tuple[str, int]:
    """Decode up to the last whole character, and tell how many bytes that was.

    At the end of the file a broken character is shown as one, or a log that ends in
    the middle of one would never end.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data, final=False)
    pending = len(decoder.getstate()[0])
    if pending and is_last and pending == len(data):
        return decoder.decode(b"", final=True), len(data)
    return text, len(data) - pending


def _folder(job: Followed, place: LogPlace) -> RunFolder:
    folder = RunFolder(Path(job.folder))
    return folder if place.task is None else folder.task(place.task)


def _newest(folder: RunFolder) -> int:
    return max(folder.attempts(), default=0)


def _path(folder: RunFolder, attempt: int, rank: int | None) -> Path:
    logs = folder.attempt(attempt)
    return logs.batch_log if rank is None else logs.rank_log(rank)
