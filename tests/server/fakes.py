"""A small working Slurm for faults that the real one can't be made to show on cue."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from hpcplat.errors import HpcplatError, InvalidError, UnavailableError
from hpcplat.slurm.scheduler import (
    Association,
    Health,
    LiveJob,
    Node,
    Partition,
    PastJob,
    Qos,
    Share,
    Submission,
    SubmittedJob,
)
from hpcplat.slurm.states import BaseState, JobState

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def node(name: str, gpus: int = 4, gpu_type: str = "h100", cpus: int = 16) -> Node:
    return Node(
        name=name,
        state="IDLE",
        flags=frozenset(),
        partitions=("gpu",),
        features=(),
        gpus={gpu_type: gpus} if gpus else {},
        gpus_used={},
        cpus=cpus,
        cpus_used=0,
        memory_mib=64_000,
        memory_used_mib=0,
        reason="",
    )


PARTITION = Partition(
    name="gpu",
    is_default=True,
    state="UP",
    nodes=("n1", "n2"),
    max_time=timedelta(hours=12),
    default_time=None,
    max_nodes=None,
    allowed_accounts=None,
    allowed_qos=None,
)


def live_job(
    job_id: int = 1, base: BaseState = BaseState.PENDING, **changes: object
) -> LiveJob:
    started = None if base is BaseState.PENDING else NOW
    record = LiveJob(
        job_id=job_id,
        address=str(job_id),
        name="job",
        user="root",
        account="lab",
        partition="gpu",
        qos="normal",
        state=JobState(base),
        reason="",
        comment="",
        nodes=() if started is None else ("n1",),
        node_count=1,
        cpus=1,
        gpus=0,
        time_limit=timedelta(hours=1),
        submitted=NOW - timedelta(minutes=1),
        started=started,
        ends=None,
        priority=1,
        restarts=0,
    )
    return replace(record, **changes)  # type: ignore[arg-type]


def past_job(
    job_id: int = 1, base: BaseState = BaseState.COMPLETED, **changes: object
) -> PastJob:
    record = PastJob(
        job_id=job_id,
        address=str(job_id),
        name="job",
        user="root",
        account="lab",
        partition="gpu",
        qos="normal",
        state=JobState(base),
        exit_code=0,
        exit_signal=0,
        reason="",
        comment="",
        nodes=("n1",),
        submitted=NOW - timedelta(minutes=1),
        started=NOW,
        ended=NOW + timedelta(minutes=1),
    )
    return replace(record, **changes)  # type: ignore[arg-type]


@dataclass
class FakeSlurm:
    """A Slurm that takes jobs and forgets them on cue; for faults alone."""

    live: dict[int, LiveJob] = field(default_factory=dict)
    past: list[PastJob] = field(default_factory=list)
    faults: list[Callable[[Submission], SubmittedJob]] = field(default_factory=list)
    is_up: bool = True
    accounting: bool = True
    settings: dict[str, str] = field(default_factory=dict)
    submitted: list[Submission] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    requeued: list[str] = field(default_factory=list)
    questions: list[str] = field(default_factory=list)
    node_states: dict[str, str] = field(default_factory=dict)
    forbids_node_states: bool = False
    drained: set[str] = field(default_factory=set)
    silent: set[str] = field(default_factory=set)
    signals: list[tuple[str, str]] = field(default_factory=list)
    next_id: int = 100
    lines: tuple[Association, ...] = ()
    administered: list[tuple[str, ...]] = field(default_factory=list)
    qualities: tuple[Qos, ...] = ()
    share_lines: tuple[Share, ...] = ()

    def version(self) -> tuple[int, int]:
        return (24, 11)

    def health(self) -> Health:
        return Health(self.is_up, self.accounting)

    def config(self) -> Mapping[str, str]:
        self._ask("config")
        return {
            "ClusterName": "fake",
            "MaxArraySize": "1001",
            "MinJobAge": "300 sec",
            "AccountingStorageType": "accounting_storage/slurmdbd",
            "AccountingStoreFlags": "job_comment",
            **self.settings,
        }

    def submit(self, submission: Submission) -> SubmittedJob:
        if self.faults:
            return self.faults.pop(0)(submission)
        return self.take(submission)

    def take(self, submission: Submission) -> SubmittedJob:
        """Take a job as Slurm does: its comment and name are the script's."""
        if not self.is_up:
            raise UnavailableError("Slurm is down.")
        self.next_id += 1
        self.submitted.append(submission)
        self.live[self.next_id] = live_job(
            self.next_id,
            comment=_option(submission.script, "comment"),
            name=_option(submission.script, "job-name"),
            submitted=datetime.now(UTC).replace(microsecond=0),
        )
        return SubmittedJob(self.next_id)

    def estimate(self, submission: Submission) -> datetime | None:
        if not self.is_up:
            raise UnavailableError("Slurm is down.")
        return NOW

    def jobs(self, *, finished: bool = False) -> Sequence[LiveJob]:
        self._ask("jobs")
        return tuple(self.live.values())

    def history(
        self, since: datetime, job_ids: Sequence[int] = ()
    ) -> Sequence[PastJob]:
        self._ask("history")
        if not self.accounting:
            raise UnavailableError("slurmdbd is down.")
        return tuple(self.past)

    def nodes(self) -> Sequence[Node]:
        self._ask("nodes")
        flags = {name: frozenset({"DRAIN"}) for name in self.drained}
        flags |= {name: frozenset({"NOT_RESPONDING"}) for name in self.silent}
        found = (node("n1"), node("n2"))
        return [replace(n, flags=flags.get(n.name, n.flags)) for n in found]

    def partitions(self) -> Sequence[Partition]:
        self._ask("partitions")
        return (PARTITION,)

    def associations(self) -> Sequence[Association]:
        self._ask("associations")
        return self.lines

    def qos(self) -> Sequence[Qos]:
        self._ask("qos")
        return self.qualities

    def qos_minutes(self) -> Mapping[str, Mapping[str, int]]:
        self._ask("qos minutes")
        return {}

    def shares(self) -> Sequence[Share]:
        self._ask("shares")
        return self.share_lines

    def cancel(self, address: str, signal: str | None = None) -> None:
        self._ask("cancel")
        if signal is not None:
            self.signals.append((address, signal))
            return
        self.cancelled.append(address)
        record = self.live.get(int(address.split("_")[0]))
        if record is not None:
            ended = replace(record, state=JobState(BaseState.CANCELLED), ends=NOW)
            self.live[record.job_id] = ended
            self.past.append(
                past_job(
                    record.job_id,
                    BaseState.CANCELLED,
                    comment=record.comment,
                    started=record.started,
                    nodes=record.nodes,
                )
            )

    def requeue(self, address: str) -> None:
        self._ask("requeue")
        self.requeued.append(address)

    def start_now(self, address: str, pause: int = 2) -> None:
        raise InvalidError("not in this fake")

    def hold(self, address: str) -> None:
        raise InvalidError("not in this fake")

    def release(self, address: str) -> None:
        raise InvalidError("not in this fake")

    def slurmd(self, node: str) -> tuple[str, int] | None:
        return None

    def set_node_state(self, node: str, state: str, reason: str = "") -> None:
        self._ask("node state")
        if self.forbids_node_states:
            raise InvalidError("Access denied.")
        self.node_states[node] = state

    def administer(self, argv: Sequence[str]) -> None:
        self._ask("administer")
        self.administered.append(tuple(argv))

    def run(self, job_id: int, base: BaseState = BaseState.RUNNING) -> None:
        """Let a job of the queue become something else."""
        started = self.live[job_id].started or datetime.now(UTC).replace(microsecond=0)
        ends = None if base is BaseState.RUNNING else datetime.now(UTC)
        self.live[job_id] = replace(
            self.live[job_id],
            state=JobState(base),
            started=started,
            ends=ends,
            nodes=("n1",),
        )

    def end(self, job_id: int, base: BaseState = BaseState.COMPLETED) -> None:
        """Let a job end: it leaves the queue, accounting knows it."""
        record = self.live.pop(job_id)
        self.past.append(
            past_job(
                job_id,
                base,
                comment=record.comment,
                submitted=record.submitted,
                started=record.started,
                nodes=record.nodes,
            )
        )

    def _ask(self, what: str) -> None:
        self.questions.append(what)
        if not self.is_up:
            raise UnavailableError("Slurm is down.")


def raising(error: HpcplatError) -> Callable[[Submission], SubmittedJob]:
    """A fault: nothing is taken."""

    def fault(_submission: Submission) -> SubmittedJob:
        raise error

    return fault


def _option(script: str, name: str) -> str:
    found = re.search(rf'^#SBATCH --{name}="?([^"\n]*)"?$', script, re.MULTILINE)
    return found[1] if found else ""
