"""The scheduler with pyslurm's quick reads: jobs and nodes without a process each.

pyslurm is bound to one Slurm release and to one cluster per process; ``choice``
offers it only where both fit. Everything else goes through the commands: pyslurm's
``db.Jobs`` keeps one record per job id, so the attempts of a requeued job would be
lost, and a submission has to be judged by sbatch's own answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from hpcplat.errors import InvalidError, UnavailableError
from hpcplat.slurm import scontrol, tres
from hpcplat.slurm.answers import UnreadableError, text_or_blank
from hpcplat.slurm.commandline import CommandLine
from hpcplat.slurm.hostlist import expand
from hpcplat.slurm.scheduler import LiveJob, Node
from hpcplat.slurm.states import BaseState, has_ended, parse_state


class PyslurmReads(CommandLine):
    """Slurm with jobs() and nodes() through pyslurm; satisfies ``Scheduler``."""

    def __init__(
        self,
        conf: Path | None = None,
        *,
        environ: Mapping[str, str],
        pyslurm: Any,  # noqa: ANN401 - an untyped extension module
        programs: Path | None = None,
        timeout: float = 20,
    ) -> None:
        super().__init__(conf, environ=environ, programs=programs, timeout=timeout)
        self._pyslurm = pyslurm

    def jobs(self, *, finished: bool = False) -> Sequence[LiveJob]:
        """Return all live jobs by one query; see ``CommandLine.jobs``."""
        records = self._load(self._pyslurm.Jobs)
        jobs = tuple(live_job(record) for record in records.values())
        if not jobs and not scontrol.parse_ping(self._ask(scontrol.argv_ping())):
            raise UnavailableError(
                "pyslurm shows no job, and the controller does not say that it is up.",
                "See whether Slurm is up (scontrol ping), then try again.",
            )
        return tuple(job for job in jobs if finished or not has_ended(job.state))

    def nodes(self) -> Sequence[Node]:
        """Return all nodes that are in a partition."""
        records = self._load(self._pyslurm.Nodes)
        nodes = tuple(node(record) for record in records.values() if record.partitions)
        if not nodes:
            raise UnreadableError("pyslurm shows no node at all.")
        return nodes

    def _load(self, collection: Any) -> Any:  # noqa: ANN401 - pyslurm is untyped
        try:
            return collection.load()
        except self._pyslurm.PyslurmError as error:
            raise UnavailableError(
                f"pyslurm: {error}.",
                "See whether Slurm is up (scontrol ping), then try again.",
            ) from error


def live_job(record: Any) -> LiveJob:  # noqa: ANN401 - pyslurm.Job, untyped
    """Return a job from the attributes of a ``pyslurm.Job`` (25.11)."""
    try:
        return _live_job(record)
    except InvalidError as error:
        raise UnreadableError(f"pyslurm's job {record.id}: {error}") from error


def _live_job(record: Any) -> LiveJob:  # noqa: ANN401 - as above
    state = parse_state(record.state)
    waits = state.base is BaseState.PENDING
    task = _task(record)
    return LiveJob(
        job_id=record.id,
        address=_address(record, task),
        name=record.name or "",
        user=record.user_name or "",
        account=record.account or "",
        partition=record.partition or "",
        qos=record.qos or "",
        state=state,
        reason=text_or_blank(record.state_reason or ""),
        comment=record.comment or "",
        nodes=expand(record.allocated_nodes or ""),
        node_count=record.num_nodes or 0,
        cpus=record.cpus or 0,
        gpus=_gpus(record),
        time_limit=_minutes(record.time_limit),
        submitted=_required(record.submit_time),
        started=None if waits else _moment(record.start_time),
        ends=None if waits else _moment(record.end_time),
        priority=record.priority or 0,
        restarts=record.requeue_count or 0,
        array_job_id=record.array_id or None,
        array_task_id=task,
        expected_start=_moment(record.start_time) if waits else None,
        batch_host=record.batch_host or "",
        cluster=record.cluster or "",
    )


def _task(record: Any) -> int | None:  # noqa: ANN401 - as above
    """Return the task's index; pyslurm gives None for 0 and for no task alike."""
    if not record.array_id or record.array_tasks_waiting:
        return None
    return record.array_task_id or 0


def _address(record: Any, task: int | None) -> str:  # noqa: ANN401 - as above
    if task is not None:
        return f"{record.array_id}_{task}"
    if record.array_tasks_waiting:
        at_once = record.array_tasks_parallel
        limit = f"%{at_once}" if at_once else ""
        return f"{record.array_id}_[{record.array_tasks_waiting}{limit}]"
    if record.heterogeneous_id:
        return f"{record.heterogeneous_id}+{record.heterogeneous_offset or 0}"
    return str(record.id)


def _gpus(record: Any) -> int:  # noqa: ANN401 - as above
    held = record.allocated_tres or record.requested_tres
    resources = held.gres if held else {}
    return tres.gpu_count(
        {f"gres/{name}": int(each.count) for name, each in resources.items()}
    )


def _minutes(value: int | None) -> timedelta | None:
    return None if value is None else timedelta(minutes=value)


def _moment(epoch: int | None) -> datetime | None:
    return datetime.fromtimestamp(epoch, UTC) if epoch else None


def _required(epoch: int | None) -> datetime:
    moment = _moment(epoch)
    if moment is None:
        raise UnreadableError("pyslurm gave a job without its submit time.")
    return moment


def node(record: Any) -> Node:  # noqa: ANN401 - pyslurm.Node, untyped
    """Return a node from the attributes of a ``pyslurm.Node`` (25.11)."""
    state, *flags = (record.state or "UNKNOWN").upper().split("+")
    return Node(
        name=record.name,
        state=state,
        flags=frozenset(flags),
        partitions=tuple(record.partitions or ()),
        features=tuple(record.available_features or ()),
        gpus=_by_type(record.configured_gres),
        gpus_used=_by_type(record.allocated_gres),
        cpus=record.total_cpus or 0,
        cpus_used=record.allocated_cpus or 0,
        memory_mib=record.real_memory or 0,
        memory_used_mib=record.allocated_memory or 0,
        reason=record.reason or "",
    )


def _by_type(gres: Mapping[str, Any] | None) -> Mapping[str, int]:
    counts = {f"gres/{name}": int(count) for name, count in (gres or {}).items()}
    return tres.gpus_by_type(counts)
