"""From a claimed submission to what sbatch gets: the run folder and the script."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from hpcplat.batchscript import Part
from hpcplat.errors import HpcplatError, InvalidError, UnavailableError
from hpcplat.files import Owner
from hpcplat.jobs import Dependency, JobSpec
from hpcplat.jobs.array import ArrayChunk, chained, chunks, parse_array
from hpcplat.runfiles import RunFile, run_files, write_files
from hpcplat.runfolder import RunFolder
from hpcplat.sitepolicy import SitePolicy
from hpcplat.slurm.environment import account_of
from hpcplat.slurm.scheduler import Submission
from server.queries.submissions import Work
from server.states import FINAL, State

DEPENDENCY_KINDS: Final = {
    "ok": "afterok",
    "any": "afterany",
    "failed": "afternotok",
    "started": "after",
}


class NotYetError(HpcplatError):
    """The job can't be submitted yet; later it can."""


def array_chunks(spec: JobSpec, max_array_size: int) -> tuple[ArrayChunk | None, ...]:
    """Return the parts that the job is submitted in; (None,) for a plain job."""
    if spec.array is None:
        return (None,)
    return _divided(spec.array, max_array_size)[0]


def part_before(part: int, spec: JobSpec, policy: SitePolicy) -> int | None:
    """Return the part of an array that must end first, so that its throttle holds."""
    if spec.array is None:
        return None
    parts, throttle = _divided(spec.array, policy.max_array_size)
    return chained(len(parts), throttle)[part] if len(parts) > 1 else None


@lru_cache(maxsize=64)
def _divided(array: str, size: int) -> tuple[tuple[ArrayChunk, ...], int | None]:
    """Return an array's parts and its throttle.

    Remembered: it is asked for each part, and a million tasks take a second.
    """
    parsed = parse_array(array)
    return chunks(parsed, size), parsed.throttle


def after_part(slurm_job_id: int | None) -> str:
    """Return the dependency on an earlier part; NotYetError before Slurm has it."""
    if slurm_job_id is None:
        raise NotYetError("It waits for an earlier part of the array.")
    return f"afterany:{slurm_job_id}"


def script_for(
    spec: JobSpec, folder: RunFolder, policy: SitePolicy, key: str, part: Part
) -> str:
    """Return the batch script alone: the very text that sbatch would get."""
    return run_files(spec, folder, policy, key, part)[-1].content


def fill_folder(folder: RunFolder, files: Sequence[RunFile], user: str | None) -> None:
    """Write files into a run folder, as ``user``'s if the service is not theirs.

    Not flushed to disk: what a power cut takes the job misses at once, and says so.
    """
    owner = None
    if user is not None:
        account = account_of(user)
        owner = Owner(account.pw_uid, account.pw_gid)
    try:
        write_files(folder, files, owner=owner, durable=False)
    except OSError as error:
        raise UnavailableError(
            f"The run folder {folder.root} can't be written ({error.strerror}).",
            "See that it is on a shared file system with room, and yours.",
        ) from error


# Writes files into a run folder as somebody's, in the site's way.
Fill = Callable[[RunFolder, Sequence[RunFile], str | None], None]


def prepare(
    work: Work,
    spec: JobSpec,
    policy: SitePolicy,
    dependency: str,
    user: str | None,
    fill: Fill = fill_folder,
) -> Submission:
    """Write the run folder of a submission, and return what sbatch gets.

    ``dependency`` is the value of ``--dependency``, in Slurm's ids. ``user``: submit as
    the person who asked, and not as the service (which runs as root).
    """
    folder = RunFolder(Path(work.folder))
    part = part_of(work, spec, policy, dependency)
    files = run_files(spec, folder, policy, work.key, part)
    fill(folder, files, user)
    script = files[-1].content
    return Submission(script=script, folder=str(folder.root), user=user)


def choose(
    work: Work, slurm_job_id: int, user: str | None = None, fill: Fill = fill_folder
) -> None:
    """Write down which Slurm job is the one of a key that was sent more than once.

    The batch script of any other ends as it begins: a late sbatch does no work twice.
    Where the site writes into no folder (slurmrestd) the twin is only cancelled.
    """
    run = RunFolder(Path(work.folder))
    fill(run, [RunFile(run.chosen(work.key), f"{slurm_job_id}\n")], user)


@dataclass(frozen=True, slots=True)
class Other:
    """A job that another one depends on."""

    state: State
    slurm_job_ids: tuple[int, ...]


def dependency_option(
    dependencies: Sequence[Dependency], others: Mapping[str, Other]
) -> str:
    """Return the value of ``--dependency``; what has happened already is left out.

    Raises NotYetError while another job has no Slurm id, InvalidError if the condition
    can't come true any more.
    """
    words = [_dependency_word(dependency, others) for dependency in dependencies]
    return ",".join(word for word in words if word)


def _dependency_word(dependency: Dependency, others: Mapping[str, Other]) -> str:
    kind = DEPENDENCY_KINDS[dependency.after]
    if dependency.job.startswith("slurm:"):
        return f"{kind}:{dependency.job.removeprefix('slurm:')}"
    other = others[dependency.job]
    if other.state in FINAL:
        return _settled_word(dependency, other)
    if not other.slurm_job_ids:
        raise NotYetError(f"It waits for job {dependency.job} to be submitted.")
    return ":".join([kind, *map(str, other.slurm_job_ids)])


def _settled_word(dependency: Dependency, other: Other) -> str:
    wanted = {"ok": {State.COMPLETED}, "failed": {State.FAILED}}.get(dependency.after)
    if wanted is None or other.state in wanted:
        return ""
    raise InvalidError(
        f"It depends on job {dependency.job} ({dependency.after}),"
        f" which is {other.state}.",
        "Submit that job again, then this one.",
    )


def part_of(
    work: Work, spec: JobSpec, policy: SitePolicy, dependency: str = ""
) -> Part:
    """Return what is this submission's own in the script."""
    chunk = array_chunks(spec, policy.max_array_size)[work.part]
    return Part(
        first_attempt=work.attempts + 1,
        account=work.account or None,
        dependency=dependency,
        chunk=chunk,
    )
