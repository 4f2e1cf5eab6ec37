"""A service of its own process, which the fault suite may kill at any moment.

    python service.py SETTINGS_JSON

With ``crash`` in the settings it kills itself at that step, once: the file named by
``crashed`` tells that it has.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import uvicorn

from hpcplat.slurm.commandline import CommandLine
from server.app import create_app
from server.database import Database
from server.hands import Hands
from server.judgement import Patience
from server.queries import arrivals, jobs, submissions
from server.reconcile import Rhythm
from server.service import Service, Times
from server.serving import PeerProtocol, listening_on
from server.submission import Pace, Submitter

QUICK = Times(
    patience=Patience(
        confirm=timedelta(seconds=0.5),
        lost=timedelta(seconds=20),
        accounting=timedelta(seconds=5),
        comeback=timedelta(seconds=5),
    ),
    pace=Pace(
        start_within=timedelta(seconds=2),
        claim_lasts=timedelta(seconds=5),
        settles=timedelta(seconds=1.5),
        retry=timedelta(seconds=0.2),
        longest_retry=timedelta(seconds=1),
    ),
    rhythm=Rhythm(fastest=0.3, slowest=0.5, idle=0.5),
)


def main(settings: dict[str, Any]) -> None:
    scheduler = CommandLine(
        Path(settings["conf"]),
        environ=dict(os.environ),
        programs=Path(settings["programs"]),
        timeout=10,
        submit_timeout=2,
    )
    service = Service(
        Database(settings["database"]),
        scheduler,
        runs=settings["runs"],
        times=QUICK,
        workers=3,
    )
    if settings.get("crash"):
        CRASHES[settings["crash"]](Path(settings["crashed"]))
    app = create_app(service, threads=True)
    with listening_on(Path(settings["socket"]), 0o600) as listener:
        config = uvicorn.Config(
            app, http=PeerProtocol, lifespan="on", log_level="error", access_log=False
        )
        uvicorn.Server(config).run(sockets=[listener])


def _die_once(mark: Path) -> None:
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def _after(module: Any, name: str) -> Callable[[Path], None]:  # noqa: ANN401
    """Die right after a function of the service has returned."""

    def install(mark: Path) -> None:
        whole = getattr(module, name)

        def dying(*words: Any, **named: Any) -> Any:  # noqa: ANN401
            result = whole(*words, **named)
            _die_once(mark)
            return result

        setattr(module, name, dying)

    return install


def _before(module: Any, name: str) -> Callable[[Path], None]:  # noqa: ANN401
    def install(mark: Path) -> None:
        whole = getattr(module, name)

        def dying(*words: Any, **named: Any) -> Any:  # noqa: ANN401
            _die_once(mark)
            return whole(*words, **named)

        setattr(module, name, dying)

    return install


# Each step between the request and the noted answer.
CRASHES: dict[str, Callable[[Path], None]] = {
    "before the row is written": _before(jobs, "create"),
    "in the transaction of the row": _after(jobs, "create"),
    "after the row, before anybody is told": _before(Hands, "give"),
    "in the transaction of the claim": _after(submissions, "claim"),
    "after the claim": _before(Submitter, "send"),
    "before sbatch": _before(CommandLine, "submit"),
    "after sbatch": _after(CommandLine, "submit"),
    "in the transaction that notes the answer": _after(arrivals, "note"),
    "while a doubt is settled": _after(submissions, "queued_again"),
}


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
