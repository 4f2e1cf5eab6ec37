"""From a claimed submission to what sbatch gets: the run folder and the script."""

from __future__ import annotations

from pathlib import Path

from hpcplat.batchscript import Part
from hpcplat.errors import UnavailableError
from hpcplat.jobs import JobSpec, spec_of
from hpcplat.jobs.array import ArrayChunk, chunks, parse_array
from hpcplat.runfiles import run_files, write_files
from hpcplat.runfolder import RunFolder
from hpcplat.sitepolicy import SitePolicy
from hpcplat.slurm.scheduler import Submission
from server.queries.submissions import Work


def array_chunks(spec: JobSpec, max_array_size: int) -> tuple[ArrayChunk | None, ...]:
    """Return the parts that the job is submitted in; (None,) for a plain job."""
    if spec.array is None:
        return (None,)
    return chunks(parse_array(spec.array), max_array_size)


def script_for(
    spec: JobSpec, folder: RunFolder, policy: SitePolicy, key: str, part: Part
) -> str:
    """Return the batch script alone: the very text that sbatch would get."""
    return run_files(spec, folder, policy, key, part)[-1].content


def prepare(work: Work, policy: SitePolicy, as_user: bool) -> Submission:
    """Write the run folder of a submission, and return what sbatch gets.

    ``as_user``: submit as the person who asked (the service runs as root).
    """
    spec = spec_of(work.spec)
    folder = RunFolder(Path(work.folder))
    files = run_files(spec, folder, policy, work.key, part_of(work, spec, policy))
    try:
        write_files(folder, files)
    except OSError as error:
        raise UnavailableError(
            f"The run folder {folder.root} can't be written ({error.strerror}).",
            "See that it is on a shared file system with room, and yours.",
        ) from error
    return Submission(
        script=files[-1].content,
        folder=str(folder.root),
        user=work.user if as_user else None,
    )


def part_of(work: Work, spec: JobSpec, policy: SitePolicy) -> Part:
    """Return what is this submission's own in the script."""
    return Part(
        first_attempt=work.attempts + 1,
        account=work.account or None,
        chunk=array_chunks(spec, policy.max_array_size)[work.part],
    )
