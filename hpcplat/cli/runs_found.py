"""Which run folder a person means by an id, a name or a path."""

from __future__ import annotations

from pathlib import Path

from hpcplat.errors import NotFoundError
from hpcplat.runfolder import RunFolder


def run_folder(word: str) -> Path:
    """Return the run folder that ``word`` names; NotFoundError if none is there."""
    path = Path(word)
    if path.is_dir():
        return _checked(path)
    raise NotFoundError(
        f"No job or run folder {word!r} is known.", "See: hpcplat runs ls"
    )


def _checked(path: Path) -> Path:
    run = RunFolder(path)
    if run.metrics.is_dir() or run.spec.is_file():
        return path
    raise NotFoundError(
        f"{path} is no run folder: it has neither {run.spec.name} nor metrics.",
        "Name a job's run folder; `hpcplat show JOB` prints it.",
    )
