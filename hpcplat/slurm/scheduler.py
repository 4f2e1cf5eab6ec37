"""What a scheduler adapter promises: the protocol and the records it speaks in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from hpcplat.errors import UnavailableError
from hpcplat.slurm.states import JobState


class SubmissionDoubtError(UnavailableError):
    """Slurm may or may not have taken the job: look its key up before a retry.

    Raised by ``submit`` alone, after a time-out, a killed sbatch or an answer that
    can't be read. A plain UnavailableError from ``submit`` means: surely not taken.
    """


@dataclass(frozen=True, slots=True)
class Submission:
    """A batch script and the options that go beside it, ready for sbatch.

    ``options`` are sbatch arguments (``--hold``, ``--account=nlp``); what can stand
    in the script's #SBATCH lines belongs there. ``user`` submits as that person
    (the adapter's own way: ``--uid`` as root); None means the calling user.
    """

    script: str
    folder: str
    options: Sequence[str] = ()
    user: str | None = None


@dataclass(frozen=True, slots=True)
class SubmittedJob:
    """What sbatch answered: the job id and, in a multi-cluster site, the cluster."""

    job_id: int
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class LiveJob:
    """One job, array task or het component as the controller knows it now.

    ``job_id`` is the record's own number; ``address`` is how people and scontrol
    name it (``123``, ``123_4``, ``123_[5-9%2]``, ``123+1``). Times are aware (UTC).
    ``gpus`` counts all GPUs asked for or held by the job. ``started`` is set only
    once the job has started; ``expected_start`` is Slurm's guess, or the begin time,
    of a pending one. ``ends`` is when the time limit strikes (or the job ended).
    A requeue changes ``submitted``: (cluster, job_id, submitted) names an attempt.
    """

    job_id: int
    address: str
    name: str
    user: str
    account: str
    partition: str
    qos: str
    state: JobState
    reason: str
    comment: str
    nodes: tuple[str, ...]
    node_count: int
    cpus: int
    gpus: int
    time_limit: timedelta | None
    submitted: datetime
    started: datetime | None
    ends: datetime | None
    priority: int
    restarts: int
    array_job_id: int | None = None
    array_task_id: int | None = None
    expected_start: datetime | None = None
    batch_host: str = ""
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class PastJob:
    """One attempt of a job as the accounting database knows it (``sacct -D``).

    An attempt that ``scontrol requeue`` ended has the state CANCELLED+REQUEUED. A job
    that lost a node and went on has a record for each size: RESIZING, with an end,
    then the next, all with one ``submitted``.
    ``allocated`` maps TRES names to counts, memory in MiB (``gres/gpu:h100``: 4), and
    so does ``requested``. ``wckey``: the project, where a site has its people name one.
    The database may hold the name without its non-ASCII letters, and the comment
    only after the end, and only where AccountingStoreFlags has job_comment.
    """

    job_id: int
    address: str
    name: str
    user: str
    account: str
    partition: str
    qos: str
    state: JobState
    exit_code: int
    exit_signal: int
    reason: str
    comment: str
    nodes: tuple[str, ...]
    submitted: datetime
    started: datetime | None
    ended: datetime | None
    allocated: Mapping[str, int] = field(default_factory=dict)
    steps: tuple[PastStep, ...] = ()
    cluster: str = ""
    requested: Mapping[str, int] = field(default_factory=dict)
    time_limit: timedelta | None = None
    wckey: str = ""


@dataclass(frozen=True, slots=True)
class PastStep:
    """One step of a past job: ``batch``, ``extern`` or a number.

    ``gpu_peak``: the highest load of GPUs that Slurm saw in one of its tasks (percent,
    summed over the task's GPUs); None where it doesn't gather any.
    """

    step: str
    state: JobState
    exit_code: int
    exit_signal: int
    started: datetime | None = None
    ended: datetime | None = None
    gpu_peak: int | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """A node: state words, GPUs by type (configured, allocated), CPUs, memory.

    ``state`` is Slurm's base word (IDLE, MIXED, ALLOCATED, DOWN …), ``flags`` what
    comes with it (DRAIN, NOT_RESPONDING …), all upper case. GPUs without a type
    have the empty text as their key.
    """

    name: str
    state: str
    flags: frozenset[str]
    partitions: tuple[str, ...]
    features: tuple[str, ...]
    gpus: Mapping[str, int]
    gpus_used: Mapping[str, int]
    cpus: int
    cpus_used: int
    memory_mib: int
    memory_used_mib: int
    reason: str


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition with its limits; None means that there is none.

    ``allowed_accounts`` and ``allowed_qos`` are None where all are allowed.
    """

    name: str
    is_default: bool
    state: str
    nodes: tuple[str, ...]
    max_time: timedelta | None
    default_time: timedelta | None
    max_nodes: int | None
    allowed_accounts: tuple[str, ...] | None
    allowed_qos: tuple[str, ...] | None
    denied_accounts: tuple[str, ...] = ()
    qos: str = ""


@dataclass(frozen=True, slots=True)
class Association:
    """One association: cluster, account, user (empty for the account's own line).

    ``limits`` has Slurm's names (GrpTRES, MaxJobs …) and only those that are set on
    this very line; a user's line inherits the rest from its account.
    """

    cluster: str
    account: str
    user: str
    partition: str
    fair_share: str
    limits: Mapping[str, str]
    qos: tuple[str, ...]
    default_qos: str
    parent: str = ""


@dataclass(frozen=True, slots=True)
class Qos:
    """A quality of service: whom it may preempt, and the limits that are set."""

    name: str
    priority: int
    preempts: tuple[str, ...]
    preempt_mode: str
    flags: frozenset[str]
    limits: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Share:
    """The fair share of one association (sshare), in Slurm's own quantities.

    ``raw_shares`` is None where the line shares with its parent; ``fair_share`` is
    between 0 and 1, None on an account's own line; ``level_fs`` may be infinite.
    ``used_minutes``: of each TRES, as the site's decay leaves them: what GrpTRESMins is
    held against.
    """

    cluster: str
    account: str
    user: str
    raw_shares: int | None
    norm_shares: float | None
    raw_usage: int
    effective_usage: float | None
    fair_share: float | None
    level_fs: float | None
    used_minutes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Health:
    """Whether the controller and the accounting database answer."""

    controller: bool
    accounting: bool
    detail: str = ""


class Scheduler(Protocol):
    """What the service and the command line need of Slurm.

    Every method raises UnavailableError when Slurm does not answer in time, and
    InvalidError or NotFoundError when Slurm refuses, with Slurm's own words.
    An answer is never partial: it is whole, or an error.
    """

    def version(self) -> tuple[int, int]:
        """Return the release, such as (22, 5)."""
        ...

    def health(self) -> Health:
        """Ask the controller and the accounting database whether they are up."""
        ...

    def config(self) -> Mapping[str, str]:
        """Return ``scontrol show config`` as names and values."""
        ...

    def submit(self, submission: Submission) -> SubmittedJob:
        """Hand a batch script to Slurm.

        Raises InvalidError or ForbiddenError when Slurm refuses, UnavailableError
        when it surely did not get the job, SubmissionDoubtError when it may have.
        """
        ...

    def estimate(self, submission: Submission) -> datetime | None:
        """Return when the job would start (``--test-only``); submits nothing.

        None means that Slurm can't tell.
        """
        ...

    def jobs(self, *, finished: bool = False) -> Sequence[LiveJob]:
        """Return all live jobs by ONE query, whatever their number.

        ``finished`` adds those that ended lately and that the controller has not
        forgotten yet (MinJobAge): look there for a key after a doubtful submission,
        accounting lags behind.
        """
        ...

    def history(
        self, since: datetime, job_ids: Sequence[int] = ()
    ) -> Sequence[PastJob]:
        """Return every attempt in accounting since then (of these jobs, if given)."""
        ...

    def nodes(self) -> Sequence[Node]:
        """Return all nodes."""
        ...

    def partitions(self) -> Sequence[Partition]:
        """Return all partitions."""
        ...

    def associations(self) -> Sequence[Association]:
        """Return all associations of this cluster."""
        ...

    def qos(self) -> Sequence[Qos]:
        """Return every quality of service."""
        ...

    def qos_minutes(self) -> Mapping[str, Mapping[str, int]]:
        """Return what each QOS has used of each resource, in minutes as they decay.

        A QOS that the caller may not see is left out.
        """
        ...

    def shares(self) -> Sequence[Share]:
        """Return the fair share of every association."""
        ...

    def cancel(self, address: str, signal: str | None = None) -> None:
        """Cancel a job or array task, or send its batch shell a signal (``USR2``).

        A job that is gone already is no error: Slurm does not tell it apart.
        """
        ...

    def requeue(self, address: str) -> None:
        """Put a job back into the queue under the same id."""
        ...

    def start_now(self, address: str, pause: int = 2) -> None:
        """Let a pending job begin, in some seconds, whatever its begin time.

        Sooner, a node that has just killed the job would refuse to launch it.
        """
        ...

    def hold(self, address: str) -> None:
        """Keep a pending job from starting."""
        ...

    def release(self, address: str) -> None:
        """Let a held job start."""
        ...

    def set_node_state(self, node: str, state: str, reason: str = "") -> None:
        """Set a node ``down``, ``drain`` or ``resume``."""
        ...

    def slurmd(self, node: str) -> tuple[str, int] | None:
        """Return address and port of a node's slurmd; None for a node that is not known."""
        ...

    def administer(self, argv: Sequence[str]) -> None:
        """Run a change of ``sacctmgr_writes``; ForbiddenError if Slurm refuses it."""
        ...
