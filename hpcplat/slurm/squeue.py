"""squeue: all jobs that the controller knows, by one query."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from hpcplat.quantities import parse_limit
from hpcplat.slurm import gres, tres
from hpcplat.slurm.answers import (
    UnreadableError,
    clip,
    parse_count,
    parse_moment,
    parse_number,
    parse_time,
    read,
    rows,
    text_or_blank,
)
from hpcplat.slurm.hostlist import expand
from hpcplat.slurm.scheduler import LiveJob
from hpcplat.slurm.states import BaseState, parse_state

# Names of squeue's --Format that 22.05 to 26.05 all know.
COLUMNS: Final = (
    "JobID",
    "JobArrayID",
    "ArrayJobID",
    "ArrayTaskID",
    "UserName",
    "Account",
    "Partition",
    "QOS",
    "State",
    "Reason",
    "NodeList",
    "BatchHost",
    "NumNodes",
    "NumCPUs",
    "tres-alloc",
    "tres-per-node",
    "tres-per-job",
    "TimeLimit",
    "SubmitTime",
    "StartTime",
    "EndTime",
    "PriorityLong",
    "RestartCnt",
    "Cluster",
    "Comment",
    "Name",
)

# Thousands of jobs share a few values; reading each once makes jobs() twice as fast.
_state = lru_cache(maxsize=256)(parse_state)
_limit = lru_cache(maxsize=1024)(parse_limit)


def argv(separator: str, *, finished: bool = False) -> list[str]:
    """Return the arguments that print every job with the separator after each field."""
    columns = ",".join(f"{column}:{separator}" for column in COLUMNS)
    states = ["--states=all"] if finished else []
    return [
        "squeue",
        "--noheader",
        "--noconvert",
        "--all",
        "--local",
        *states,
        f"--Format={columns}",
    ]


def parse(stdout: str, separator: str) -> tuple[LiveJob, ...]:
    """Return the jobs. Raises UnreadableError unless every row can be read."""
    return tuple(read(_job, row) for row in rows(stdout, separator, len(COLUMNS)))


def _job(row: list[str]) -> LiveJob:
    field = dict(zip(COLUMNS, row, strict=True))
    state = _state(field["State"])
    start = parse_time(field["StartTime"])
    waits = state.base is BaseState.PENDING
    array, task = _array(field)
    node_count = parse_count(field["NumNodes"])
    return LiveJob(
        job_id=parse_count(field["JobID"]),
        address=field["JobArrayID"],
        name=field["Name"],
        user=field["UserName"],
        account=text_or_blank(field["Account"]),
        partition=text_or_blank(field["Partition"]),
        qos=text_or_blank(field["QOS"]),
        state=state,
        reason=text_or_blank(field["Reason"]),
        comment="" if field["Comment"] == "(null)" else field["Comment"],
        nodes=expand(text_or_blank(field["NodeList"])),
        node_count=node_count,
        cpus=parse_count(field["NumCPUs"]),
        gpus=_gpus(
            field["tres-alloc"],
            field["tres-per-node"],
            field["tres-per-job"],
            node_count,
        ),
        time_limit=_limit(field["TimeLimit"]),
        submitted=parse_moment(field["SubmitTime"]),
        started=None if waits else start,
        ends=None if waits else parse_time(field["EndTime"]),
        priority=parse_count(field["PriorityLong"]),
        restarts=parse_count(field["RestartCnt"]),
        array_job_id=array,
        array_task_id=task,
        expected_start=start if waits else None,
        batch_host=text_or_blank(field["BatchHost"]),
        cluster=text_or_blank(field["Cluster"]),
    )


def _array(field: dict[str, str]) -> tuple[int | None, int | None]:
    """Return the array's id and, where the row is one task, its index."""
    task = text_or_blank(field["ArrayTaskID"])
    if not task:
        return None, None
    if f"{field['ArrayJobID']}_" not in field["JobArrayID"]:
        raise UnreadableError(f"{clip(field['JobArrayID'])} is not an array's task.")
    index = parse_number(task) if task.isdigit() else None
    return parse_count(field["ArrayJobID"]), index


@lru_cache(maxsize=4096)
def _gpus(tracked: str, per_node: str, per_job: str, node_count: int) -> int:
    """Count from the trackable resources; from the request if they lack GPUs.

    A site that does not list gres/gpu in AccountingStorageTRES does not track it.
    """
    return (
        tres.gpu_count(tres.parse_tres(tracked))
        or gres.gpu_count(per_node) * node_count
        or gres.gpu_count(per_job)
    )
