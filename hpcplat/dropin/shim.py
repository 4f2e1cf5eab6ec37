"""The real sbatch, and the shim that may stand ahead of it on PATH."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from hpcplat.errors import ConflictError, NotFoundError, UnavailableError
from hpcplat.files import write_whole

MARK: Final = "hpcplat sbatch shim"


def shim_text(python: str = sys.executable) -> str:
    """Return the shim: a shell script that hands its words to hpcplat."""
    program = shlex.quote(python)
    return (
        "#!/bin/sh\n"
        f"# {MARK}: tracks what is submitted, and runs the real sbatch. Remove this\n"
        "# file to be rid of it.\n"
        f'exec {program} -I -m hpcplat.cli.main sbatch "$@"\n'
    )


def install(folder: Path) -> Path:
    """Write the shim as FOLDER/sbatch; refuses to replace anything else."""
    if not folder.is_dir():
        raise NotFoundError(f"{folder} is no folder.", f"Make it: mkdir -p {folder}.")
    path = folder / "sbatch"
    if path.exists() and not is_shim(path):
        raise ConflictError(
            f"{path} is there already and is no shim of hpcplat.",
            "Choose another folder: the real sbatch must stay.",
        )
    write_whole(path, shim_text(), 0o755)
    return path


def is_shim(path: Path) -> bool:
    """Tell whether a file is a shim of ours (also a copy, or a link to one)."""
    try:
        with path.open("rb") as file:
            return MARK.encode() in file.read(512)
    except OSError:
        return False


def real_sbatch(search_path: str, callers: Sequence[str] = ()) -> Path:
    """Return the first sbatch on PATH that is no shim of ours, nor called us already.

    ``callers`` are the PATHs of the drop-ins above this process, outermost first: what
    each of them ran is a site's wrapper, which called sbatch by its name.
    """
    used: set[Path] = set()
    for path in callers:
        used |= {_next_sbatch(path, used)}
    return _next_sbatch(search_path, used)


def _next_sbatch(search_path: str, used: set[Path]) -> Path:
    for path in _programs("sbatch", search_path):
        if path.resolve() not in used and not is_shim(path):
            return path.resolve()
    raise UnavailableError(
        "The real sbatch is not on PATH.", "Install Slurm's commands, or load them."
    )


def first_on_path(search_path: str) -> Path | None:
    """Return the sbatch that a shell would start."""
    return next(_programs("sbatch", search_path), None)


def _programs(name: str, search_path: str) -> Iterator[Path]:
    for folder in search_path.split(os.pathsep):
        path = Path(folder or ".") / name
        if path.is_file() and os.access(path, os.X_OK):
            yield path


def callers(process: int | None = None) -> list[str]:
    """Return the PATHs of the drop-ins that run above this process, outermost first.

    There is one where the "real" sbatch is a site's wrapper that calls sbatch by its
    name: the second call must go on to the next sbatch, and not track the job twice.
    The process tree is asked, not a variable: a variable would enter the job's
    environment and blind the jobs that the job submits.
    """
    found: list[str] = []
    parent = os.getppid() if process is None else process
    while parent > 1:
        words, above = _process(parent)
        if "hpcplat.cli.main" in words and "sbatch" in words:
            found.insert(0, _search_path_of(parent))
        if words[:1] and words[0].endswith("slurmstepd"):
            break
        parent = above
    return found


def _process(number: int) -> tuple[list[str], int]:
    """Return a process's words and its parent; nothing where /proc does not tell."""
    folder = Path("/proc") / str(number)
    try:
        words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        status = (folder / "stat").read_text(errors="replace")
    except OSError:
        return [], 0
    return words, int(status.rpartition(")")[2].split()[1])


def _search_path_of(number: int) -> str:
    try:
        block = (Path("/proc") / str(number) / "environ").read_bytes()
    except OSError:
        return ""
    entries = block.decode(errors="replace").split("\0")
    return next((e[len("PATH=") :] for e in entries if e.startswith("PATH=")), "")
