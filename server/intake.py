"""From a request to a row: read, admit, and write down before anything is sent."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, NamedTuple

from pydantic import ValidationError
from sqlalchemy.exc import IntegrityError
from sqlmodel import Session

from hpcplat.errors import ConflictError, InvalidError
from hpcplat.jobs import Dependency, JobSpec, SpecError, parse, spec_of
from hpcplat.jobs.complaints import spec_error
from hpcplat.runfiles import secret_names
from hpcplat.training import training_of
from server import auth
from server.admission import admit
from server.auth import Principal
from server.datasets import with_dataset_pinned
from server.hands import Promise
from server.ids import new_job_id
from server.people.workspaces import workspace_of_job
from server.preparation import array_chunks
from server.problems import FieldsError
from server.queries import jobs, keptsecrets, people, submissions, workspaces
from server.queries.jobs import NewJob, Scope
from server.quotas import Asked
from server.schemas import BulkRequest, Invalid, JobRequest
from server.service import Service
from server.standing import asked_by, refuse_hopeless

DEFAULT_WORKSPACE: Final = workspaces.DEFAULT


@dataclass(frozen=True, slots=True)
class Made:
    """What was written down of a job, for whom, and when."""

    job: NewJob
    workspace: str
    user: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Accepted:
    """A job that has a row: made by this request, or (None) by an earlier one."""

    job_id: str
    made: Made | None

    @property
    def is_replay(self) -> bool:
        """Whether an earlier request made it."""
        return self.made is None


class Place(NamedTuple):
    """A workspace that a job goes to."""

    number: int
    name: str


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request that can run, before it has a row."""

    spec: JobSpec
    secrets: Mapping[str, str]
    partition: str
    offsets: tuple[int, ...]
    tasks: int
    asked: Asked | None = None  # of Slurm's limits, where it enforces any


def read_request(content: bytes) -> JobRequest:
    """Return the request in a JSON body; each fault named by its field."""
    values = parse(content, "json")
    spec = values.get("spec")
    if not isinstance(spec, dict):
        raise _no_spec("spec")
    checked = _checked(spec)
    try:
        return JobRequest.model_validate({**values, "spec": checked})
    except ValidationError as error:
        raise _field_errors(error) from error


def read_bulk(content: bytes, largest: int) -> BulkRequest:
    """Return the requests in a JSON body; each fault named by its job and field."""
    values = parse(content, "json", largest)
    requests = values.get("jobs")
    if not isinstance(requests, list):
        raise FieldsError(
            [Invalid(field="jobs", detail="It is missing.", remedy="Give a list.")]
        )
    checked = [_bulk_item(place, item) for place, item in enumerate(requests)]
    try:
        return BulkRequest.model_validate({**values, "jobs": checked})
    except ValidationError as error:
        raise _field_errors(error) from error


def admitted(service: Service, principal: Principal, request: JobRequest) -> Admitted:
    """Check a request against the cluster and Slurm's limits on who asks.

    Raises FieldsError, UnavailableError, or as ``workspace_of_job`` does.
    """
    spec = with_dataset_pinned(request.spec, service.policy.datasets)
    facts = service.site.facts()
    partition = admit(spec, facts)
    missing = sorted(set(secret_names(spec)) - set(request.secrets))
    if missing:
        raise FieldsError([_missing_secret(name) for name in missing])
    parts = array_chunks(spec, facts.max_array_size)
    tasks = sum(chunk.tasks if chunk else 1 for chunk in parts)
    account = _account(service, principal, spec)
    book = service.quota_book()
    asked = None
    if book is not None:
        account = account or book.default_account(principal.name)
        asked = asked_by(spec, principal.name, account, partition.name, tasks)
        refuse_hopeless(book, asked, spec)
    return Admitted(
        spec=spec,
        secrets={name: request.secrets[name] for name in secret_names(spec)},
        partition=partition.name,
        offsets=tuple(chunk.offset if chunk else 0 for chunk in parts),
        tasks=tasks,
        asked=asked,
    )


def _account(service: Service, principal: Principal, spec: JobSpec) -> str:
    """Return the Slurm account that the job would run under; empty: the default.

    Believed for some seconds: who may submit there is looked up anew as the job is
    written down.
    """
    key = (principal.user_id, principal.is_admin, spec.workspace)
    known = service.accounts.get(key)
    if known is not None:
        return known
    with service.database.read() as session:
        name = workspace_of_job(
            session, principal, spec.workspace, is_personal=not service.serves_others
        )
        return service.accounts.keep(key, people.account_of(session, name))


def accept(
    service: Service,
    principal: Principal,
    scope: Scope,
    requests: Sequence[Admitted],
    idempotency_key: str | None = None,
) -> list[Accepted]:
    """Write the jobs down, all or none, and have them submitted.

    The same key with the same requests returns the jobs that they made before; with
    others it is a ConflictError.
    """
    auth.may_submit(principal, service.identity)
    keys = _keys(idempotency_key, len(requests))
    parts = sum(len(request.offsets) for request in requests)
    with service.submitter.hands.promising(parts) as promise:
        written = partial(_written, service, principal, scope, requests, keys, promise)
        try:
            accepted = written()
        except IntegrityError:
            # The same key came twice at once: the other request has made the rows.
            accepted = written()
    made = {one.job_id for one in accepted if one.made is not None}
    if sum(work.job_id in made for work in promise.works) < parts:
        service.queued()
    return accepted


def _written(
    service: Service,
    principal: Principal,
    scope: Scope,
    requests: Sequence[Admitted],
    keys: Sequence[str | None],
    promise: Promise,
) -> list[Accepted]:
    """Write the jobs down, and claim what this service has room in hand for."""
    now = datetime.now(UTC)
    accepted: list[Accepted] = []
    new: list[NewJob] = []
    with_secrets: list[str] = []
    cluster = service.site.name
    with service.secret_keeper.keeping() as keep, service.database.write() as session:
        places = _workspaces(session, service, principal, requests, now)
        for request, key in zip(requests, keys, strict=True):
            spec = _resolved(session, scope, request.spec)
            digest = spec_digest(spec)
            earlier = _earlier(session, principal, key, digest)
            if earlier is not None:
                accepted.append(Accepted(earlier, None))
                continue
            job_id = new_job_id()
            place = places[request.spec.workspace]
            new.append(
                NewJob(
                    id=job_id,
                    cluster=cluster,
                    workspace_id=place.number,
                    user_id=principal.user_id,
                    name=spec.name,
                    kind=spec.kind,
                    spec=spec.model_dump(mode="json"),
                    spec_digest=digest,
                    folder=service.folder_of(principal.name, job_id),
                    partition=request.partition,
                    nodes=spec.resources.all_nodes,
                    gpus=spec.resources.all_nodes * spec.resources.gpus_per_node,
                    tasks=request.tasks,
                    offsets=request.offsets,
                    idempotency_key=key,
                )
            )
            if request.secrets:
                keep(new[-1].folder, request.secrets, principal.name)
                with_secrets.append(job_id)
            made = Made(new[-1], place.name, principal.name, now)
            accepted.append(Accepted(job_id, made))
        jobs.create(session, new, now)
        keptsecrets.note(session, with_secrets)
        room = promise.room if new else 0
        promise.works = submissions.claim(session, cluster, now, room) if room else []
    return accepted


def _workspaces(
    session: Session,
    service: Service,
    principal: Principal,
    requests: Sequence[Admitted],
    now: datetime,
) -> Mapping[str | None, Place]:
    """Return the workspaces that are meant; refuses those not open."""
    places = {}
    for wanted in dict.fromkeys(request.spec.workspace for request in requests):
        name = workspace_of_job(
            session, principal, wanted, is_personal=not service.serves_others
        )
        places[wanted] = Place(people.ensure_workspace(session, name, now), name)
    return places


def spec_digest(spec: JobSpec) -> str:
    """Return the SHA-256 of what was asked for, however it was spelled."""
    text = json.dumps(spec.model_dump(mode="json"), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _earlier(
    session: Session, principal: Principal, key: str | None, digest: str
) -> str | None:
    if key is None:
        return None
    job = jobs.by_idempotency_key(session, principal.user_id, key)
    if job is None:
        return None
    if job.spec_digest != digest:
        raise ConflictError(
            f"The Idempotency-Key was used for another request (job {job.id}).",
            "Use a new key for a new job.",
        )
    return job.id


def _keys(key: str | None, count: int) -> list[str | None]:
    if key is None or count == 1:
        return [key] * count
    return [f"{key}/{place}" for place in range(count)]


def _resolved(session: Session, scope: Scope, spec: JobSpec) -> JobSpec:
    """Return the spec with the jobs that it depends on named by their ids."""
    if not spec.dependencies:
        return spec
    found = tuple(
        dependency
        if dependency.job.startswith("slurm:")
        else Dependency(
            job=jobs.find_by_id_or_name(session, scope, dependency.job).job.id,
            after=dependency.after,
        )
        for dependency in spec.dependencies
    )
    return spec.model_copy(update={"dependencies": found})


def _checked(values: Mapping[str, Any]) -> JobSpec:
    """Return the spec; a training run's model, settings and layout are looked at too."""
    spec = spec_of(values)
    if spec.preset is not None:
        training_of(spec)
    return spec


def _bulk_item(place: int, item: Any) -> dict[str, Any]:  # noqa: ANN401 - as it came
    if not isinstance(item, dict) or not isinstance(item.get("spec"), dict):
        raise _no_spec(f"jobs.{place}.spec")
    try:
        return {**item, "spec": _checked(item["spec"])}
    except SpecError as error:
        raise FieldsError(
            [
                Invalid(
                    field=f"jobs.{place}.spec.{complaint.field}".rstrip("."),
                    detail=complaint.what,
                    remedy=complaint.remedy,
                )
                for complaint in error.complaints
            ]
        ) from error


def _field_errors(error: ValidationError) -> InvalidError:
    told = spec_error(error, JobRequest)
    return FieldsError(
        [
            Invalid(field=c.field, detail=c.what, remedy=c.remedy)
            for c in told.complaints
        ]
    )


def _no_spec(field: str) -> FieldsError:
    return FieldsError(
        [Invalid(field=field, detail="It is missing.", remedy='Write {"spec": {…}}.')]
    )


def _missing_secret(name: str) -> Invalid:
    return Invalid(
        field=f"secrets.{name}",
        detail="The spec takes this secret from you, and it is not there.",
        remedy="Send its value beside the spec.",
    )
