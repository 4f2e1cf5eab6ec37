"""Following a job: through restarts of the service and gaps in the network."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from hpcplat.cli.session import FINAL, service
from hpcplat.cli.tables import COLOURS, printable, wants_colour
from hpcplat.cli.times import local, moment
from hpcplat.client import Client, ServerSentEvent
from hpcplat.errors import ExitCode, UnavailableError

FIRST_PAUSE: Final = 0.5  # seconds before the first new try, then ever longer
LONGEST_PAUSE: Final = 10.0

Stream = Callable[[Client, str | None], Iterator[ServerSentEvent]]


def messages(stream: Stream) -> Iterator[ServerSentEvent]:
    """Yield a stream's messages to its end, each once, however often it breaks.

    After a break it goes on behind the last message. That the service is away, and is
    back, is said on the standard error.
    """
    last: str | None = None
    pause = FIRST_PAUSE
    is_away = False
    while True:
        try:
            with service() as client:
                for message in stream(client, last):
                    if is_away:
                        print("hpcplat: the service is back.", file=sys.stderr)
                    is_away, pause = False, FIRST_PAUSE
                    last = message.id or last
                    yield message
                    if message.kind == "end":
                        return
        except UnavailableError as error:
            if not is_away:
                print(f"hpcplat: {error.what} Trying on.", file=sys.stderr)
            is_away = True
        time.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE)


def events_of(job_id: str) -> Iterator[dict[str, Any]]:
    """Yield the events of a job, past ones first, until it is over."""
    for message in messages(lambda client, last: client.follow_events(job_id, last)):
        if message.kind == "event":
            event: dict[str, Any] = json.loads(message.data)
            yield event


def follow(job: dict[str, Any], *, as_json: bool = False) -> int:
    """Print a job's events until it is over; returns 0 if it completed, else 1.

    As JSON, one object a line.
    """
    state = str(job["state"])
    try:
        for event in events_of(job["id"]):
            print(json.dumps(event) if as_json else event_line(event), flush=True)
            state = event["state"]
    except KeyboardInterrupt:
        print(
            f"\nhpcplat: job {job['id']} goes on. hpcplat wait {job['id']} waits"
            f" for it, hpcplat cancel {job['id']} stops it.",
            file=sys.stderr,
        )
        raise
    return exit_code(state)


def exit_code(state: str) -> int:
    """Return the exit code for a job that ended so."""
    return ExitCode.DONE if state == "COMPLETED" else ExitCode.MENDABLE


def event_line(event: dict[str, Any]) -> str:
    """Return an event as a line: when, the state after it, why."""
    state = str(event["state"])
    code = COLOURS.get(state) if wants_colour() else None
    shown = f"\x1b[{code}m{state:<10}\x1b[0m" if code else f"{state:<10}"
    return f"{local(moment(event['at']))}  {shown}  {printable(event['reason'])}"


def is_over(job: dict[str, Any]) -> bool:
    """Whether nothing more will happen to the job by itself."""
    return job["state"] in FINAL
