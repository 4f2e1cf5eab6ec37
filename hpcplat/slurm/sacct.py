"""sacct: every attempt of every job in the accounting database."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from hpcplat.slurm.answers import (
    UnreadableError,
    clip,
    parse_count,
    parse_moment,
    parse_time,
    read,
    rows,
    text_or_blank,
)
from hpcplat.slurm.hostlist import expand
from hpcplat.slurm.scheduler import PastJob, PastStep
from hpcplat.slurm.states import parse_state, past_state
from hpcplat.slurm.tres import parse_tres

# Names of sacct's --format that 22.05 to 26.05 all know (Restarts is newer).
COLUMNS: Final = (
    "JobIDRaw",
    "JobID",
    "User",
    "Account",
    "Partition",
    "QOS",
    "State",
    "ExitCode",
    "Reason",
    "Submit",
    "Start",
    "End",
    "NodeList",
    "AllocTRES",
    "Cluster",
    "Comment",
    "JobName",
    "ReqTRES",
    "TimelimitRaw",
    "WCKey",
    "TRESUsageInMax",
)

# Without states and an end in the future, sacct leaves out the jobs that never
# became eligible: a job cancelled while held would be in no answer.
_STATES: Final = "BF,CA,CD,DL,F,NF,OOM,PD,PR,R,RQ,RS,S,TO"
_END: Final = "now+3650days"
# One argument may be 128 KiB long on Linux.
MOST_IDS: Final = 10_000

# What the NVML plugin gathers; Slurm keeps no load of GPUs without it.
_GPU_LOAD: Final = re.compile(r"(?:^|,)gres/gpuutil=(?P<percent>[0-9]{1,10})(?:,|$)")
_EXIT: Final = re.compile(r"(?P<code>[0-9]{1,10}):(?P<signal>[0-9]{1,10})")


def argv(since: datetime, job_ids: Sequence[int], separator: str) -> list[str]:
    """Return the arguments; ``since`` is aware, and at most MOST_IDS ids fit."""
    if since.tzinfo is None:
        raise ValueError(f"{since} has no time zone")
    start = since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")
    ids = [f"--jobs={','.join(map(str, job_ids))}"] if job_ids else []
    return [
        "sacct",
        "--allusers",
        "--duplicates",
        "--noheader",
        "--noconvert",
        "--parsable",
        f"--delimiter={separator}",
        f"--starttime={start}",
        f"--endtime={_END}",
        f"--state={_STATES}",
        *ids,
        f"--format={','.join(COLUMNS)}",
    ]


def parse(stdout: str, separator: str) -> tuple[PastJob, ...]:
    """Return the attempts with their steps. Raises UnreadableError, never a part."""
    jobs: list[PastJob] = []
    steps: list[list[PastStep]] = []
    for row in rows(stdout, separator, len(COLUMNS)):
        if "." in row[0]:
            if not jobs or row[0].split(".")[0] != str(jobs[-1].job_id):
                raise UnreadableError(f"sacct gave {clip(row[0])} without its job.")
            steps[-1].append(read(_step, row))
        else:
            jobs.append(read(_job, row))
            steps.append([])
    return tuple(
        replace(job, steps=tuple(its)) if its else job
        for job, its in zip(jobs, steps, strict=True)
    )


def _job(row: list[str]) -> PastJob:
    field = dict(zip(COLUMNS, row, strict=True))
    code, signal = _exit(field["ExitCode"])
    ended = parse_time(field["End"])
    return PastJob(
        job_id=parse_count(field["JobIDRaw"]),
        address=field["JobID"],
        name=field["JobName"],
        user=field["User"],
        account=field["Account"],
        partition=field["Partition"],
        qos=field["QOS"],
        state=past_state(field["State"], ended=ended is not None),
        exit_code=code,
        exit_signal=signal,
        reason=text_or_blank(field["Reason"]),
        comment=field["Comment"],
        nodes=expand(text_or_blank(field["NodeList"])),
        submitted=parse_moment(field["Submit"]),
        started=parse_time(field["Start"]),
        ended=ended,
        allocated=parse_tres(field["AllocTRES"]),
        cluster=field["Cluster"],
        requested=parse_tres(field["ReqTRES"]),
        time_limit=_limit(field["TimelimitRaw"]),
        wckey=field["WCKey"].lstrip("*"),  # the star: it is the user's default
    )


def _step(row: list[str]) -> PastStep:
    field = dict(zip(COLUMNS, row, strict=True))
    code, signal = _exit(field["ExitCode"])
    return PastStep(
        step=field["JobIDRaw"].split(".", 1)[1],
        state=parse_state(field["State"]),
        exit_code=code,
        exit_signal=signal,
        started=parse_time(field["Start"]),
        ended=parse_time(field["End"]),
        gpu_peak=_gpu_load(field["TRESUsageInMax"]),
    )


def _gpu_load(field: str) -> int | None:
    found = _GPU_LOAD.search(field)
    return int(found["percent"]) if found else None


def _limit(field: str) -> timedelta | None:
    """Return the time limit; None for UNLIMITED, and for the partition's."""
    return timedelta(minutes=int(field)) if field.isdecimal() else None


def _exit(field: str) -> tuple[int, int]:
    """Return exit code and signal; 0, 0 for a step whose end nobody could tell.

    So it is where a node died: its step has ended (CANCELLED), and no code is known.
    """
    if not field:
        return 0, 0
    match = _EXIT.fullmatch(field)
    if match is None:
        raise UnreadableError(f"{clip(field)} is not an exit code.")
    return int(match["code"]), int(match["signal"])
