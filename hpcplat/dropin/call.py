"""One call of sbatch: what it is about to do, found before the real one runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hpcplat.errors import InvalidError
from hpcplat.sbatchline.commandline import CommandLine, parse
from hpcplat.sbatchline.directives import parse_script
from hpcplat.sbatchline.options import KNOWN, Options
from hpcplat.sbatchline.precedence import Request, from_environment, request

# With these, sbatch submits nothing.
NO_JOB: Final = frozenset({"help", "usage", "version", "autocomplete", "test-only"})


@dataclass(frozen=True, slots=True)
class Call:
    """A call that would submit a job.

    ``script`` is the batch script's content as sbatch will read it (of --wrap: None);
    ``came_by_stdin`` says that it was read from the standard input, and must be given
    on.
    """

    words: tuple[str, ...]
    request: Request
    script: bytes | None
    came_by_stdin: bool


def read_call(
    words: Sequence[str],
    environment: Mapping[str, str],
    read_stdin: Callable[[], bytes],
    plugins: Callable[[], str],
) -> Call | None:
    """Return what this call is about, or None where it will submit nothing.

    None too for a call that sbatch is going to refuse: it says so in its own words.
    ``plugins`` returns ``sbatch --help``; asked only where an option is unknown.
    """
    line, options = _parsed(words, plugins)
    if any(given.name in NO_JOB for given in line.all_given):
        return None
    wrapped = any(given.name == "wrap" for given in line.all_given)
    script = None if wrapped else _script(line, environment, read_stdin)
    if script is None and not wrapped:
        return None
    try:
        lines = parse_script((script or b"").decode(errors="replace"), options)
    except InvalidError:
        return None
    asked = request(line, lines, from_environment(environment, options))
    if asked.has("test-only"):
        return None
    return Call(tuple(words), asked, script, line.script is None and not wrapped)


def _parsed(
    words: Sequence[str], plugins: Callable[[], str]
) -> tuple[CommandLine, Options]:
    line = parse(words, KNOWN)
    if not line.strangers:
        return line, KNOWN
    options = KNOWN.with_plugins(plugins())
    return parse(words, options), options


def _script(
    line: CommandLine, environment: Mapping[str, str], read_stdin: Callable[[], bytes]
) -> bytes | None:
    """Return the script's bytes; None where sbatch will not find it."""
    if line.script is None:
        return read_stdin()
    for path in _candidates(line.script, environment.get("PATH", "")):
        if path.is_file() and os.access(path, os.R_OK):
            return path.read_bytes()
    return None


def _candidates(name: str, search_path: str) -> list[Path]:
    """Return where sbatch looks: the folder itself, then PATH."""
    if name.startswith(("/", ".")):
        return [Path(name)]
    folders = filter(None, search_path.split(os.pathsep))
    return [Path(name), *(Path(folder) / name for folder in folders)]
