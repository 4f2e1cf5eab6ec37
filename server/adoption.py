"""Jobs that somebody's own sbatch submitted: they get a row, and are watched from then on.

The drop-in (hpcplat.dropin) asks before it runs sbatch, and tells afterwards. Slurm is
asked whether the job is there and whose it is: nobody takes a stranger's job for theirs.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from sqlmodel import Session

from hpcplat.errors import ConflictError, HpcplatError, InvalidError, NotFoundError
from hpcplat.files import write_whole
from hpcplat.ids import KEY_PATTERN
from hpcplat.jobs.array import parse_array
from hpcplat.jobs.complaints import spec_error
from hpcplat.runfolder import RunFolder
from hpcplat.sbatchline.body import parse_body
from hpcplat.sbatchline.commandline import parse
from hpcplat.sbatchline.directives import parse_script
from hpcplat.sbatchline.precedence import Request, from_environment, request
from hpcplat.sbatchline.specs import imported
from hpcplat.slurm.scheduler import LiveJob, PastJob
from server.auth import Principal
from server.intake import DEFAULT_WORKSPACE
from server.queries import arrivals, jobs, people
from server.queries.jobs import NewJob
from server.service import Service
from server.states import ADOPTED

Model = TypeVar("Model", bound=BaseModel)

LOOK_BACK: Final = timedelta(days=7)  # accounting is asked for jobs no older than this


class SbatchCall(BaseModel):
    """One call of sbatch: what was asked, and Slurm's number once it has one."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    key: str = Field(pattern=KEY_PATTERN.pattern, max_length=64)
    words: list[str] = Field(max_length=10_000)
    script: str = Field(default="", max_length=1024 * 1024)
    environment: dict[str, str] = Field(default_factory=dict)
    folder: str = Field(max_length=4096)
    job_id: int | None = Field(default=None, ge=1, le=2**32)


class SbatchCalls(BaseModel):
    """Several calls, told at once."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    calls: list[SbatchCall] = Field(min_length=1, max_length=1000)


class Adoption(BaseModel):
    """What became of one call: the job's id, or why it is not tracked."""

    model_config = ConfigDict(frozen=True)

    key: str
    job: str | None = None
    refusal: str = ""


class Adoptions(BaseModel):
    """What became of each call, in order."""

    model_config = ConfigDict(frozen=True)

    calls: list[Adoption]


@dataclass(frozen=True, slots=True)
class Known:
    """What Slurm says of a job: enough for a row."""

    name: str
    user: str
    account: str
    partition: str
    nodes: int
    gpus: int


def read(model: type[Model], content: bytes) -> Model:
    """Return the record in a JSON body; InvalidError names the first fault."""
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        raise spec_error(error, model) from error


def adopted(
    service: Service, principal: Principal, calls: Sequence[SbatchCall]
) -> list[Adoption]:
    """Give jobs of the person's own their rows; twice makes them once.

    Slurm is asked once for all of them. What can't be adopted (Slurm knows no such job,
    it is another's) is told in its place, and does not keep the others.
    """
    known = _known(service, [call.job_id for call in calls if call.job_id])
    now = datetime.now(UTC)
    told: list[Adoption] = []
    with service.database.write() as session:
        for call in calls:
            try:
                _adopt(service, session, principal, call, known, now)
            except HpcplatError as error:
                told.append(Adoption(key=call.key, refusal=str(error)))
            else:
                told.append(Adoption(key=call.key, job=_job_id(call)))
    for call, one in zip(calls, told, strict=True):
        if one.job is not None:
            _keep_script(service.folder_of(principal.name, one.job), call)
    service.look_soon()
    return told


def _adopt(
    service: Service,
    session: Session,
    principal: Principal,
    call: SbatchCall,
    known: Mapping[int, Known],
    now: datetime,
) -> None:
    if call.job_id is None or call.job_id not in known:
        raise NotFoundError(f"Slurm knows no job {call.job_id}.", "See squeue, sacct.")
    facts = known[call.job_id]
    if facts.user != principal.name:
        raise ConflictError(
            f"Slurm job {call.job_id} is not {principal.name}'s.",
            "Only your own jobs are tracked as yours.",
        )
    if _is_there(session, principal, _job_id(call)):
        return
    workspace = _workspace(session, facts, now)
    jobs.create(session, [_row(service, principal, call, facts, workspace)], now)
    session.flush()
    [row] = jobs.submissions_of(session, _job_id(call))
    arrivals.note(session, {row.id or 0: call.job_id}, now)


def _is_there(session: Session, principal: Principal, job_id: str) -> bool:
    row = jobs.by_id(session, job_id)
    if row is not None and row.user_id != principal.user_id:
        raise ConflictError("The key is another person's.", "Submit again.")
    return row is not None


def _known(service: Service, numbers: Sequence[int]) -> Mapping[int, Known]:
    """Return what Slurm says of jobs, by number: squeue first, then accounting."""
    scheduler = service.site.scheduler
    live: dict[int, list[LiveJob]] = {}
    for record in scheduler.jobs(finished=True):
        live.setdefault(_root(record), []).append(record)
    found = {n: _of_live(live[n]) for n in numbers if n in live}
    missing = [n for n in numbers if n not in found]
    if missing and service.site.facts().has_accounting:
        past: dict[int, list[PastJob]] = {}
        for old in scheduler.history(datetime.now(UTC) - LOOK_BACK, missing):
            past.setdefault(_past_root(old), []).append(old)
        found |= {n: _of_past(past[n]) for n in missing if n in past}
    return found


def _past_root(job: PastJob) -> int:
    root = re.split(r"[_+]", job.address, maxsplit=1)[0]
    return int(root) if root.isdecimal() else job.job_id


def _root(job: LiveJob) -> int:
    if job.array_job_id:
        return job.array_job_id
    root, plus, _ = job.address.partition("+")
    return int(root) if plus and root.isdecimal() else job.job_id


def _of_live(records: Sequence[LiveJob]) -> Known:
    first = records[0]
    is_array = first.array_job_id is not None
    counted = records[:1] if is_array else records  # components of a het job add up
    return Known(
        first.name,
        first.user,
        first.account,
        first.partition,
        sum(record.node_count for record in counted),
        sum(record.gpus for record in counted),
    )


def _of_past(records: Sequence[PastJob]) -> Known:
    first = records[0]
    gpus = first.allocated.get("gres/gpu", 0)
    return Known(
        first.name,
        first.user,
        first.account,
        first.partition,
        max(1, len(first.nodes)),
        gpus,
    )


def _workspace(session: Session, known: Known, now: datetime) -> int:
    """Return the workspace of the job's account, or the one for all the rest."""
    with contextlib.suppress(NotFoundError):
        return people.workspace_id(session, known.account)
    return people.ensure_workspace(session, DEFAULT_WORKSPACE, now)


def _row(
    service: Service,
    principal: Principal,
    call: SbatchCall,
    known: Known,
    workspace_id: int,
) -> NewJob:
    asked = _asked(call)
    spec = _spec(call, asked, known.name)
    text = json.dumps(spec, sort_keys=True)
    return NewJob(
        id=_job_id(call),
        cluster=service.site.name,
        workspace_id=workspace_id,
        user_id=principal.user_id,
        name=known.name,
        kind=ADOPTED,
        spec=spec,
        spec_digest=hashlib.sha256(text.encode()).hexdigest(),
        folder=service.folder_of(principal.name, _job_id(call)),
        partition=known.partition,
        nodes=known.nodes,
        gpus=known.gpus,
        tasks=_tasks(asked),
        offsets=(0,),
    )


def _asked(call: SbatchCall) -> Request | None:
    """Return the options that count; None for a script that nobody can read."""
    with contextlib.suppress(InvalidError):
        script = parse_script(call.script)
        return request(parse(call.words), script, from_environment(call.environment))
    return None


def _spec(call: SbatchCall, asked: Request | None, name: str) -> dict[str, Any]:
    """Return what was asked in a spec's words, as far as they go, and the call itself."""
    values: dict[str, Any] = {"name": name}
    if asked is not None:
        with contextlib.suppress(HpcplatError):
            values |= imported(asked, parse_body(call.script), name).values
    told = {"words": call.words, "folder": call.folder}
    return {**values, "name": name, "call": told}


def _tasks(asked: Request | None) -> int:
    array = asked.value("array") if asked else None
    if not array:
        return 1
    with contextlib.suppress(InvalidError):
        return len(parse_array(array).indices)
    return 1


def _job_id(call: SbatchCall) -> str:
    match = KEY_PATTERN.fullmatch(call.key)
    if match is None:
        raise InvalidError(f"{call.key} is no key.", "Let hpcplat sbatch make it.")
    return match[1]


def _keep_script(folder: str, call: SbatchCall) -> None:
    """Keep the script where `show --script` looks; a job does not hang on that."""
    run = RunFolder(Path(folder))
    with contextlib.suppress(OSError):
        run.root.mkdir(parents=True, exist_ok=True)
        write_whole(run.script, call.script, 0o600)
