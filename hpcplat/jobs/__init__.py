"""Jobs: what may be asked for, and how a request is read."""

from hpcplat.jobs.complaints import Complaint, SpecError
from hpcplat.jobs.reading import changed, parse, parse_file, read_spec, spec_of
from hpcplat.jobs.spec import Dependency, JobKind, JobSpec

__all__ = [
    "Complaint",
    "Dependency",
    "JobKind",
    "JobSpec",
    "SpecError",
    "changed",
    "parse",
    "parse_file",
    "read_spec",
    "spec_of",
]
