"""What a job wants of its dataset's copy on each node's own disk."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field

from hpcplat.jobs.fields import Duration, Memory, PathText, Record

LARGEST: Final = 500 * 1024  # MiB


class Staging(Record):
    """A copy of the dataset on each node's own disk, made before the first step."""

    folder: PathText | None = Field(
        default=None,
        description="A folder of the node's own disk; $TMPDIR or /tmp if not given.",
    )
    size: Memory = Field(
        default=LARGEST,
        description="What your copies may take there; the oldest make room.",
    )
    age: Duration = Field(
        default=timedelta(days=14),
        description="How long a copy stays after its last use.",
    )


def _staging(value: Any) -> Any:  # noqa: ANN401 - whatever stood in the file
    """Take true for a record of defaults, and false for none."""
    if value is True:
        return {}
    return None if value is False else value


Staged = Annotated[Staging | None, BeforeValidator(_staging)]
