"""An attempt as its coordinator knows it: what is to be done, where, and what it tells."""

from __future__ import annotations

import socket
import sys
from dataclasses import dataclass
from typing import Any

from hpcplat import eventlog
from hpcplat.allocation import environment
from hpcplat.eventlog import EventKind, RunEvent
from hpcplat.launchplan import LaunchPlan
from launchers import arguments
from launchers.recovery.requeue import address


@dataclass(frozen=True, slots=True)
class Attempt:
    """One start of a job under Slurm.

    ``host`` is this machine's own name, ``node`` and ``job`` are Slurm's names.
    """

    plan: LaunchPlan
    place: arguments.Arguments
    host: str
    node: str
    job: str

    @classmethod
    def here(cls, plan: LaunchPlan, place: arguments.Arguments) -> Attempt:
        """Return the attempt whose batch host this is."""
        host, environ = socket.gethostname(), environment()
        node = environ.get("SLURMD_NODENAME", host)
        return cls(plan, place, host, node, address(environ))

    def tell(self, kind: EventKind, what: str, **details: Any) -> None:  # noqa: ANN401
        """Append an event to the run folder's log."""
        event = RunEvent(kind, what, self.place.attempt, details=details)
        try:
            eventlog.append(self.place.run.events, event)
        except OSError as error:  # a full disk: the training goes on
            print(f"{what} (not in the event log: {error.strerror})", file=sys.stderr)

    def past(self) -> tuple[RunEvent, ...]:
        """Return all events of the job so far, of earlier attempts too."""
        found, _ = eventlog.read_all(self.place.run.events)
        return found
