"""What can be done with a job that is there, and how rows become answers."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlmodel import Session

from hpcplat.batchscript import Part
from hpcplat.errors import ConflictError, InvalidError, NotFoundError, UnavailableError
from hpcplat.jobs import JobKind, spec_of
from hpcplat.runfolder import RunFolder
from hpcplat.slurm.reasons import in_words, is_hopeless
from hpcplat.slurm.scheduler import LiveJob
from hpcplat.slurm.scheduler import Submission as Script
from hpcplat.tracking.aimlink import aim_path
from server import auth, logfiles, standing
from server.auth import Action, Principal
from server.ids import new_job_id, submission_key
from server.intake import Admitted, Made
from server.preparation import array_chunks, script_for
from server.queries import events, jobs, people, submissions, workspaces
from server.queries.jobs import Named, Scope
from server.recovery_ledger import ledger_of
from server.schemas import AttemptAnswer, DryRun, JobAnswer, JobDetails, Outlook
from server.service import Service
from server.standing import asked_by
from server.states import FINAL, Sending, State
from server.tables import Attempt, Job, Submission


def job_answer(named: Named) -> JobAnswer:
    """Return a job as the API gives it."""
    return JobAnswer(**_fields(named))


def answer_of_made(made: Made) -> JobAnswer:
    """Return a job as the API gives it when it was written down just now."""
    job = made.job
    return JobAnswer(
        id=job.id,
        name=job.name,
        kind=job.kind,
        workspace=made.workspace,
        user=made.user,
        cluster=job.cluster,
        state=State.QUEUED,
        is_final=False,
        reason="",
        slurm_job_id=None,
        partition=job.partition,
        nodes=job.nodes,
        gpus=job.gpus,
        tasks=job.tasks,
        attempts=0,
        exit_code=None,
        folder=job.folder,
        aim=aim_path(job.id, f"/aim/{made.workspace}"),
        created_at=made.at,
        updated_at=made.at,
        started_at=None,
        ended_at=None,
    )


def job_details(named: Named) -> JobDetails:
    """Return a job with its spec, and a training's with its ledger."""
    job, ledger = named.job, None
    if job.kind == JobKind.TRAIN and job.started_at is not None:
        ledger = ledger_of(job.folder, runs=job.state == State.RUNNING)
    return JobDetails(**_fields(named), spec=job.spec, ledger=ledger)


def attempt_answer(row: Attempt) -> AttemptAnswer:
    """Return an attempt as the API gives it."""
    task = None if row.task < 0 else row.task
    return AttemptAnswer(**{**row.model_dump(), "task": task})


def aware(moment: datetime | None) -> datetime | None:
    """Take a time without a zone for UTC."""
    if moment is None or moment.tzinfo is not None:
        return moment
    return moment.replace(tzinfo=UTC)


def dry_run(service: Service, principal: Principal, request: Admitted) -> DryRun:
    """Return what would be submitted, and when Slurm thinks that it would start.

    Raises InvalidError with Slurm's words if Slurm would refuse it.
    """
    auth.may_submit(principal, service.identity)
    job_id = new_job_id()
    folder = service.folder_of(principal.name, job_id)
    policy = service.policy_for(request.spec)
    chunk = array_chunks(request.spec, policy.max_array_size)[0]
    script = script_for(
        request.spec,
        RunFolder(Path(folder)),
        policy,
        submission_key(job_id, 1, 0),
        Part(chunk=chunk),
    )
    return DryRun(
        script=script,
        folder=folder,
        tasks=request.tasks,
        parts=len(request.offsets),
        expected_start=_estimate(service, script, principal),
        outlook=_outlook_of(service, request),
    )


def outlook(service: Service, scope: Scope, reference: str) -> Outlook:
    """Return what a job that Slurm holds waits for; empty for one that does not."""
    with service.database.read() as session:
        named = jobs.find(session, scope, reference)
        account = people.account_of(session, named.workspace)
    job, book = named.job, service.quota_book()
    if job.state not in {State.PENDING, State.QUEUED} or book is None:
        return Outlook()
    live = _live_record(service, job)
    account = live.account if live else account or book.default_account(named.user)
    seen = Outlook()
    if job.kind in set(JobKind):  # an sbatch that was only tracked has no spec
        asked = asked_by(spec_of(job.spec), named.user, account, job.partition, 1)
        seen = standing.outlook(book, asked, live.priority if live else None)
    return seen.model_copy(
        update={
            "reason": in_words(job.reason),
            "is_hopeless": is_hopeless(job.reason),
            "expected_start": live.expected_start if live else None,
        }
    )


def _live_record(service: Service, job: Job) -> LiveJob | None:
    """Return Slurm's own record of a job's first waiting part."""
    if job.slurm_job_id is None:
        return None
    try:
        records = service.site.scheduler.jobs()
    except UnavailableError:
        return None
    own = (job.slurm_job_id,)
    return next((r for r in records if r.job_id in own or r.array_job_id in own), None)


def _outlook_of(service: Service, request: Admitted) -> Outlook:
    book = service.quota_book()
    if book is None or request.asked is None:
        return Outlook()
    return standing.outlook(book, request.asked)


def cancel(
    service: Service,
    principal: Principal,
    scope: Scope,
    reference: str,
    task: int | None,
) -> JobAnswer:
    """Cancel a job or a task; kept as a wish while Slurm does not answer."""
    now = datetime.now(UTC)
    with service.database.write() as session:
        named = jobs.find(session, scope, reference)
        _check(session, principal, Action.CANCEL, named.job)
        job = jobs.locked(session, named.job.id)
        if job.state in FINAL:
            raise ConflictError(
                f"Job {job.id} is {job.state} already.", "There is nothing to cancel."
            )
        if task is None:
            _note_cancel(session, job, principal, now)
        addresses = _addresses(session, job, task)
    try:
        for address in addresses:
            service.site.scheduler.cancel(address)
    except UnavailableError:
        if task is not None:  # a wish is kept for whole jobs only
            raise
    except (NotFoundError, ConflictError):
        pass  # it ended in the meantime: the reconcile loop will see how
    service.look_soon()
    service.refresh(at_once=True)
    return _again(service, scope, named.job.id)


def requeue(
    service: Service,
    principal: Principal,
    scope: Scope,
    reference: str,
    task: int | None,
) -> JobAnswer:
    """Put a job or a task back into the queue, under the same Slurm id."""
    with service.database.read() as session:
        named = jobs.find(session, scope, reference)
        _check(session, principal, Action.REQUEUE, named.job)
        addresses = _addresses(session, named.job, task)
    if not addresses:
        raise ConflictError(
            f"Job {named.job.id} is {named.job.state}: Slurm does not have it.",
            "Submit it again.",
        )
    for address in addresses:
        service.site.scheduler.requeue(address)
        service.reconciler.hurry(int(address.partition("_")[0]))
    now = datetime.now(UTC)
    with service.database.write() as session:
        job = jobs.locked(session, named.job.id)
        job.cancel_asked = False
        reason = f"{principal.name} asked for a requeue."
        events.add(session, job, "requeue", reason, now)
        submissions.watch_again(session, job.id)
    service.look_soon()
    service.refresh(at_once=True)
    return _again(service, scope, named.job.id)


def script_of(job: Job) -> str:
    """Return the batch script that was submitted, from the run folder."""
    folder = RunFolder(Path(job.folder))
    piece = logfiles.read_piece(folder.root, folder.script, 0, 4 * 1024 * 1024)
    return piece.data.decode(errors="replace")


def _fields(named: Named) -> dict[str, Any]:
    job = named.job
    return {
        "id": job.id,
        "name": job.name,
        "kind": job.kind,
        "workspace": named.workspace,
        "user": named.user,
        "cluster": job.cluster,
        "state": job.state,
        "is_final": job.state in FINAL,
        "reason": in_words(job.reason) if job.state == State.PENDING else job.reason,
        "slurm_job_id": job.slurm_job_id,
        "partition": job.partition,
        "nodes": job.nodes,
        "gpus": job.gpus,
        "tasks": job.tasks,
        "attempts": job.attempts,
        "exit_code": job.exit_code,
        "folder": job.folder,
        "aim": aim_path(job.id, f"/aim/{named.workspace}"),
        "created_at": job.created_at,
        "updated_at": job.updated_at,
        "started_at": job.started_at,
        "ended_at": job.ended_at,
    }


def _check(session: Session, principal: Principal, action: Action, job: Job) -> None:
    """Refuse what the principal's role in the job's workspace does not allow."""
    role = workspaces.role_in(session, principal.user_id, job.workspace_id)
    auth.may(principal, action, job.user_id, role)


def _note_cancel(
    session: Session, job: Job, principal: Principal, now: datetime
) -> None:
    job.cancel_asked = True
    events.add(session, job, "cancel", f"{principal.name} asked to cancel it.", now)
    if submissions.withdraw(session, job):
        submissions.cancelled(session, job, now)


def _addresses(session: Session, job: Job, task: int | None) -> list[str]:
    """Return how Slurm names the job's parts, or the one task that is meant."""
    rows = jobs.submissions_of(session, job.id)
    newest = max(row.round for row in rows)
    parts = [
        row
        for row in rows
        if row.round == newest and row.state == Sending.SENT and row.slurm_job_id
    ]
    if task is None:
        return [str(row.slurm_job_id) for row in parts]
    if job.tasks == 1:
        raise InvalidError(f"Job {job.id} is no array.", "Leave task out.")
    return [_task_address(job, parts, task)]


def _task_address(job: Job, parts: list[Submission], task: int) -> str:
    """Return ``<array>_<index>``: the bare number would mean the whole array."""
    below = [row for row in parts if row.offset <= task]
    if not below:
        raise NotFoundError(
            f"Slurm does not have task {task} of job {job.id}.", "Check the index."
        )
    part = max(below, key=lambda row: row.offset)
    return f"{part.slurm_job_id}_{task - part.offset}"


def _estimate(service: Service, script: str, principal: Principal) -> datetime | None:
    submission = Script(
        script=script, folder="/", user=service.submits_as(principal.name)
    )
    try:
        return service.site.scheduler.estimate(submission)
    except UnavailableError:
        return None


def _again(service: Service, scope: Scope, job_id: str) -> JobAnswer:
    with service.database.read() as session:
        return job_answer(jobs.find(session, scope, job_id))
