"""The scheduler through Slurm's own commands: works with every version."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from hpcplat import processes
from hpcplat.errors import HpcplatError, InvalidError, UnavailableError
from hpcplat.processes import Completed, ProgramTimeoutError
from hpcplat.slurm import (
    assoc_mgr,
    environment,
    refusals,
    remedies,
    sacct,
    sacctmgr,
    sbatch,
    scancel,
    scontrol,
    sinfo,
    squeue,
    sshare,
)
from hpcplat.slurm.answers import UnreadableError, new_separator
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
from hpcplat.slurm.versions import parse_version

T = TypeVar("T")


class CommandLine:
    """Slurm behind its commands; satisfies ``Scheduler``.

    ``conf`` is the slurm.conf of the cluster (None: what the commands find by
    themselves), ``programs`` the folder of the commands (None: PATH). ``environ``
    is the caller's environment, of which an allow-list is passed on. A question may
    take ``timeout`` seconds, a submission ``submit_timeout``: sbatch itself retries
    for a while when the controller is busy.
    """

    def __init__(
        self,
        conf: Path | None = None,
        *,
        environ: Mapping[str, str],
        programs: Path | None = None,
        timeout: float = 20,
        submit_timeout: float = 60,
    ) -> None:
        self._conf = conf
        self._programs = programs
        self._timeout = timeout
        self._submit_timeout = submit_timeout
        self._base = environment.allowed(environ, conf)
        self._queries = environment.for_queries(self._base)

    def version(self) -> tuple[int, int]:
        """Return the release of the commands, such as (22, 5)."""
        return parse_version(self._ask(["sbatch", "--version"]))

    def health(self) -> Health:
        """Ask the controller and the accounting database whether they are up."""
        ping, ping_words = self._attempt(scontrol.argv_ping())
        accounting, its_words = self._attempt(sacctmgr.argv_clusters())
        controller = ping is not None and scontrol.parse_ping(ping.stdout)
        detail = [
            "" if controller else ping_words,
            "" if accounting is not None and accounting.ok else its_words,
        ]
        return Health(
            controller=controller,
            accounting=accounting is not None and accounting.ok,
            detail="; ".join(filter(None, detail)),
        )

    def config(self) -> Mapping[str, str]:
        """Return ``scontrol show config`` as names and values."""
        return scontrol.parse_config(self._ask(scontrol.argv_config()))

    def submit(self, submission: Submission) -> SubmittedJob:
        """Hand a batch script to Slurm.

        Raises InvalidError or ForbiddenError when Slurm refuses, UnavailableError
        when it surely did not get the job, SubmissionDoubtError when it may have.
        """
        env = self._environment_of(submission)
        try:
            done = self._run(
                sbatch.argv(submission),
                env,
                stdin=submission.script,
                timeout=self._submit_timeout,
            )
        except ProgramTimeoutError as error:
            raise refusals.doubt(error.what.rstrip(".")) from error
        if not done.ok:
            raise self._with_remedy(refusals.submission_error(done), submission)
        try:
            return sbatch.parse(done.stdout)
        except UnreadableError as error:
            raise refusals.doubt(error.what.rstrip(".")) from error

    def estimate(self, submission: Submission) -> datetime | None:
        """Return when the job would start (``--test-only``); submits nothing.

        None means that Slurm can't tell.
        """
        env = environment.for_estimates(self._environment_of(submission))
        argv = sbatch.argv_estimate(submission)
        done = self._run(argv, env, stdin=submission.script)
        if not done.ok:
            raise self._with_remedy(refusals.error_of(done, InvalidError), submission)
        return sbatch.parse_estimate(done.stderr, datetime.now(UTC))

    def jobs(self, *, finished: bool = False) -> Sequence[LiveJob]:
        """Return all live jobs by one query, whatever their number.

        ``finished`` adds those that ended within MinJobAge. No job at all is
        believed only if the controller then says that it is up.
        """
        separator = new_separator()
        answer = self._ask(squeue.argv(separator, finished=finished))
        jobs = squeue.parse(answer, separator)
        if not jobs and not scontrol.parse_ping(self._ask(scontrol.argv_ping())):
            raise UnavailableError(
                "squeue shows no job, and the controller does not say that it is up.",
                "See whether Slurm is up (scontrol ping), then try again.",
            )
        return jobs

    def history(
        self, since: datetime, job_ids: Sequence[int] = ()
    ) -> Sequence[PastJob]:
        """Return every attempt in accounting since then (of these jobs, if given)."""
        return tuple(
            itertools.chain.from_iterable(
                self._history(since, chunk) for chunk in _chunks(job_ids)
            )
        )

    def _history(self, since: datetime, job_ids: Sequence[int]) -> tuple[PastJob, ...]:
        separator = new_separator()
        answer = self._ask(sacct.argv(since, job_ids, separator))
        return sacct.parse(answer, separator)

    def nodes(self) -> Sequence[Node]:
        """Return all nodes that are in a partition."""
        separator = new_separator()
        nodes = sinfo.parse(self._ask(sinfo.argv(separator)), separator)
        return _some(nodes, "sinfo")

    def partitions(self) -> Sequence[Partition]:
        """Return all partitions."""
        answer = self._ask(scontrol.argv_partitions())
        return _some(scontrol.parse_partitions(answer), "scontrol show partition")

    def associations(self) -> Sequence[Association]:
        """Return all associations of this cluster."""
        cluster = self.config()["ClusterName"]
        answer = self._ask(sacctmgr.argv_associations(cluster))
        return sacctmgr.parse_associations(answer)

    def qos(self) -> Sequence[Qos]:
        """Return every quality of service."""
        return sacctmgr.parse_qos(self._ask(sacctmgr.argv_qos()))

    def qos_minutes(self) -> Mapping[str, Mapping[str, int]]:
        """Return what each QOS has used of each resource, in minutes as they decay."""
        return assoc_mgr.parse_qos_minutes(self._ask(assoc_mgr.argv_qos()))

    def shares(self) -> Sequence[Share]:
        """Return the fair share of every association."""
        return sshare.parse(self._ask(sshare.argv()))

    def cancel(self, address: str, signal: str | None = None) -> None:
        """Cancel a job or array task, or send its batch shell a signal (``USR2``)."""
        self._order(scancel.argv(address, signal))

    def requeue(self, address: str) -> None:
        """Put a job back into the queue under the same id."""
        self._order(scontrol.argv_requeue(address))

    def start_now(self, address: str, pause: int = scontrol.START_PAUSE) -> None:
        """Let a pending job begin, in some seconds, whatever its begin time.

        Sooner, a node that has just killed the job would refuse to launch it.
        """
        self._order(scontrol.argv_start_now(address, pause))

    def hold(self, address: str) -> None:
        """Keep a pending job from starting."""
        self._order(scontrol.argv_hold(address))

    def release(self, address: str) -> None:
        """Let a held job start."""
        self._order(scontrol.argv_release(address))

    def set_node_state(self, node: str, state: str, reason: str = "") -> None:
        """Set a node ``down``, ``drain`` or ``resume``."""
        self._order(scontrol.argv_node_state(node, state, reason))

    def slurmd(self, node: str) -> tuple[str, int] | None:
        """Return address and port of a node's slurmd; None for a node that is not known."""
        return sinfo.parse_slurmd(self._ask(sinfo.argv_slurmd(node)))

    def administer(self, argv: Sequence[str]) -> None:
        """Run a change of ``sacctmgr_writes``."""
        self._order(argv)

    def _ask(self, argv: Sequence[str]) -> str:
        """Return what a command prints. Raises UnavailableError when it fails."""
        done = self._run(argv, self._queries)
        if not done.ok:
            raise refusals.error_of(done, UnavailableError)
        return done.stdout

    def _order(self, argv: Sequence[str]) -> None:
        done = self._run(argv, self._queries)
        if not done.ok:
            raise refusals.error_of(done, InvalidError)

    def _attempt(self, argv: Sequence[str]) -> tuple[Completed | None, str]:
        """Run a command that may fail; return it and, for a message, its words."""
        try:
            done = self._run(argv, self._queries)
        except UnavailableError as error:
            return None, error.what
        return done, f"{argv[0]}: {refusals.words_of(done)}"

    def _run(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        stdin: str = "",
        timeout: float | None = None,
    ) -> Completed:
        if self._conf is not None and not self._conf.is_file():
            # The commands would look for it for a minute before they give up.
            raise UnavailableError(
                f"{self._conf} is not there.", "Name the cluster's slurm.conf."
            )
        program = str(self._programs / argv[0]) if self._programs else argv[0]
        return processes.run(
            [program, *argv[1:]],
            timeout=timeout or self._timeout,
            stdin=stdin,
            env=env,
        )

    def _environment_of(self, submission: Submission) -> Mapping[str, str]:
        if submission.user is None:
            return self._base
        return environment.of_user(self._base, submission.user)

    def _with_remedy(self, error: HpcplatError, submission: Submission) -> HpcplatError:
        """Add to a refusal what there is to choose from, if Slurm will say."""
        row = refusals.find(error.what)
        if row is None or row.topic is None or isinstance(error, UnavailableError):
            return error
        try:
            choice = remedies.choice(self, row.topic, submission)
        except UnavailableError:
            return error  # the refusal matters; the list was a kindness
        return type(error)(error.what, f"{error.remedy} {choice}".strip())


def _chunks(job_ids: Sequence[int]) -> Iterator[Sequence[int]]:
    """Cut the ids into pieces that fit a command line; no id is one piece: all."""
    if not job_ids:
        yield ()
    for start in range(0, len(job_ids), sacct.MOST_IDS):
        yield job_ids[start : start + sacct.MOST_IDS]


def _some(things: Sequence[T], command: str) -> Sequence[T]:
    """Return what there is; a cluster has some, so nothing means no answer."""
    if not things:
        raise UnreadableError(f"{command} shows nothing at all.")
    return things
