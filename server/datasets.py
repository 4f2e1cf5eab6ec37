"""What a job trains on, named for good: a tag may move while the job waits."""

from __future__ import annotations

from pathlib import Path

from hpcplat.datasets.names import Reference
from hpcplat.datasets.store import Store
from hpcplat.errors import HpcplatError
from hpcplat.jobs import JobSpec
from server.problems import FieldsError
from server.schemas import Invalid


def with_dataset_pinned(spec: JobSpec, root: str | None) -> JobSpec:
    """Return the spec with its dataset named by digest; FieldsError if there is none.

    ``root``: the folder of all datasets; None, or one that the job brings itself
    (``settings.data.root``): the job finds out when it starts.
    """
    if spec.data is None or root is None or _brings_its_own(spec):
        return spec
    try:
        reference = Reference.parse(spec.data)
        digest = Store(Path(root)).digest(reference)
    except HpcplatError as error:
        raise FieldsError(
            [Invalid(field="data", detail=error.what, remedy=error.remedy)]
        ) from error
    return spec.model_copy(update={"data": f"{reference.name}@{digest}"})


def _brings_its_own(spec: JobSpec) -> bool:
    data = spec.settings.get("data", {})
    return isinstance(data, dict) and "root" in data
