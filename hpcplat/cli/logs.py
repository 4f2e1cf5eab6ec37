"""`hpcplat logs JOB`: what a job prints."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from hpcplat.cli.following import messages
from hpcplat.cli.sbatch_log import follow_log, log_file, print_log
from hpcplat.cli.session import FINAL, AsJson, JobName, find, print_json, service
from hpcplat.cli.tables import printable
from hpcplat.errors import ExitCode

app = typer.Typer()


@app.command()
def logs(  # noqa: PLR0913 - each is an option of the command line
    job: JobName,
    rank: Annotated[
        int | None, typer.Option("--rank", "-r", min=0, help="Whose log; 0 at first.")
    ] = None,
    attempt: Annotated[
        int | None, typer.Option("--attempt", "-a", min=1, help="Of which start.")
    ] = None,
    tail: Annotated[
        int | None, typer.Option("--tail", "-n", min=0, help="Only the last lines.")
    ] = None,
    *,
    batch: Annotated[
        bool, typer.Option("--batch", help="The batch script's own log.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the job is over.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print a job's log: rank 0's of the newest attempt, or another one's."""
    with service() as client:
        found = find(client, job)
        if found.job["kind"] == "sbatch":
            path = log_file(client, found)
            follow_log(path, found.id) if follow else print_log(path, tail)
            return
        where = _given(
            rank=rank, attempt=attempt, tail=tail, task=found.task, batch=batch or None
        )
        if not follow:
            text = client.logs(found.id, **where)
            print_json({"log": text}) if as_json else _write(text)
            if not text and tail != 0:
                _say_why(found.job)
            return
    try:
        _follow(found.id, where, as_json=as_json)
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def _follow(job_id: str, where: dict[str, Any], *, as_json: bool) -> None:
    stream = messages(lambda client, last: client.follow_logs(job_id, last, **where))
    is_empty = True
    for message in stream:
        if message.kind != "log":
            continue
        is_empty = False
        print_json({"log": message.data}) if as_json else _write(message.data)
    if is_empty:
        with service() as client:
            client.logs(job_id, **where)  # where there is none, it says which there are
            _say_why(client.job(job_id))


def _say_why(job: dict[str, Any]) -> None:
    """Say that a log is empty, and what is known of its job."""
    yet = "" if job["state"] in FINAL else " yet"
    told = f"It printed nothing{yet}: the job is {job['state']}."
    print(f"hpcplat: {told} {printable(job['reason'] or '')}".rstrip(), file=sys.stderr)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _given(**values: Any) -> dict[str, Any]:  # noqa: ANN401 - the query's values
    return {name: value for name, value in values.items() if value is not None}
