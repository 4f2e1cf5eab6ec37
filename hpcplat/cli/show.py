"""`hpcplat show JOB`: all there is to know of one job."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

from hpcplat.cli.jobs import elapsed
from hpcplat.cli.session import AsJson, JobName, find, print_json, service
from hpcplat.cli.tables import Column, printable, shown, wants_colour
from hpcplat.cli.times import age, clock, local, moment

app = typer.Typer()

ATTEMPTS: Final = (
    Column("ATTEMPT", lambda row: str(row["number"]), right=True),
    Column("TASK", lambda row: "" if row["task"] is None else str(row["task"])),
    Column("STATE", lambda row: row["state"], coloured=True),
    Column("STARTED", lambda row: local(moment(row["started_at"])), rank=1),
    Column("TIME", lambda row: _took(row), right=True),
    Column("EXIT", lambda row: _exit(row), right=True),
    Column("NODES", lambda row: ",".join(row["nodes"]), shrinks=True),
    Column("REASON", lambda row: row["reason"], rank=2, shrinks=True),
)


@app.command()
def show(
    job: JobName,
    *,
    script: Annotated[
        bool, typer.Option("--script", help="Print the batch script, nothing else.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show a job: its state and why, its size, its attempts, its folder."""
    with service() as client:
        found = find(client, job)
        if script:
            print(client.script(found.id), end="")
            return
        details = client.job(found.id)
        attempts = client.attempts(found.id, found.task)
        waits = details["state"] == "PENDING"
        outlook = client.outlook(found.id) if waits else {}
    if as_json:
        print_json({**details, "attempts_list": attempts, "outlook": outlook})
        return
    print("\n".join(_lines(details, outlook)))
    if attempts:
        print("\n" + shown(attempts, ATTEMPTS))


def _lines(job: Mapping[str, Any], outlook: Mapping[str, Any]) -> list[str]:
    created = moment(job["created_at"])
    facts = {
        "Job": f"{job['id']}  {job['name']}",
        "State": " - ".join(filter(None, (job["state"], job["reason"]))),
        "Over": " ".join(outlook.get("waits_for", ())),
        "Queue": _queue(outlook),
        "Slurm": _slurm(job),
        "Who": f"{job['user']}, workspace {job['workspace']}",
        "Size": _size(job),
        "Created": f"{local(created)} ({age(created)} ago)",
        "Started": local(moment(job["started_at"])),
        "Ran": elapsed(job),
        "Effective": _effective(job.get("ledger")),
        "Exit code": "" if job["exit_code"] is None else str(job["exit_code"]),
        "Folder": job["folder"],
        "Aim": f"hpcplat ui {job['id']}" if job["aim"] else "",
    }
    width = max(map(len, facts)) + 2
    bold = ("\x1b[1m", "\x1b[0m") if wants_colour() else ("", "")
    return [
        f"{bold[0]}{name + ':':<{width}}{bold[1]}{printable(text)}"
        for name, text in facts.items()
        if text
    ]


def _effective(ledger: Mapping[str, Any] | None) -> str:
    """Say how much of a training's time counted, and what was lost to failures."""
    if ledger is None:
        return ""
    failures = ledger["failures"]
    said = f"{ledger['effective_training_time_ratio']:.1%} of the time"
    if failures:
        down = sum(failure["down"] for failure in failures)
        many = _many(len(failures), "failure")
        steps = _many(ledger["lost_steps"], "step")
        said += f"; {many} cost {down:.1f} s and {steps}"
    return said


def _queue(outlook: Mapping[str, Any]) -> str:
    parts = [f"place {outlook['place']}"] if outlook.get("place") else []
    if outlook.get("fair_share") is not None:
        parts.append(f"fair share {outlook['fair_share']:.2f}")
    start = moment(outlook.get("expected_start"))
    if start is not None:
        parts.append(f"expected to start {local(start)}")
    if outlook.get("is_hopeless"):
        parts.append("it can't start unless something is changed")
    return ", ".join(parts)


def _slurm(job: Mapping[str, Any]) -> str:
    if not job["slurm_job_id"]:
        return ""
    return (
        f"job {job['slurm_job_id']} on {job['cluster']}, partition {job['partition']}"
    )


def _size(job: Mapping[str, Any]) -> str:
    parts = [_many(job["nodes"], "node")]
    if job["gpus"]:
        parts.append(_many(job["gpus"], "GPU"))
    if job["tasks"] > 1:
        parts.append(_many(job["tasks"], "array task"))
    return ", ".join(parts)


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _took(row: Mapping[str, Any]) -> str:
    started = moment(row["started_at"])
    if started is None:
        return ""
    return clock((moment(row["ended_at"]) or datetime.now(UTC)) - started)


def _exit(row: Mapping[str, Any]) -> str:
    if row["exit_signal"]:
        return f"signal {row['exit_signal']}"
    return "" if row["exit_code"] is None else str(row["exit_code"])
