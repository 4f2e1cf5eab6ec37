"""The commands of a batch script: which of them srun starts, and what goes before."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from hpcplat.sbatchline.commandline import Component, parse_options
from hpcplat.sbatchline.options import KNOWN, MAYBE, NOTHING, Option, Options

# srun's options that sbatch lacks (srun(1)), and pyxis's, which sites often have.
SRUN: Final = Options(
    (
        *(o for o in KNOWN.rows if o.name not in {"wait", "kill-on-invalid-dep"}),
        Option("accel-bind"),
        Option("bcast", takes=MAYBE),
        Option("container-image"),
        Option("container-mount-home", takes=NOTHING),
        Option("container-mounts"),
        Option("container-name"),
        Option("container-workdir"),
        Option("cpu-bind"),
        Option("disable-status", short="X", takes=NOTHING),
        Option("epilog"),
        Option("exact", takes=NOTHING),
        Option("het-group"),
        Option("jobid"),
        Option("kill-on-bad-exit", short="K", takes=MAYBE),
        Option("label", short="l", takes=NOTHING),
        Option("mpi"),
        Option("multi-prog", takes=NOTHING),
        Option("overlap", takes=NOTHING),
        Option("preserve-env", short="E", takes=NOTHING),
        Option("prolog"),
        Option("pty", takes=MAYBE),
        Option("relative", short="r"),
        Option("task-epilog"),
        Option("task-prolog"),
        Option("threads", short="T"),
        Option("unbuffered", short="u", takes=NOTHING),
        Option("wait", short="W"),
        Option("whole", takes=NOTHING),
    )
)

_WORD: Final = re.compile(
    r"""(?:[^\s"'\\]|\\.|"(?:\\.|[^"\\])*"|'[^']*')+""", re.DOTALL
)
_SHELLS: Final = frozenset({"", "sh", "bash", "dash", "ksh", "zsh"})
_SRUN: Final = re.compile(r"(?:exec\s+|time\s+)*srun(?=\s)")
_SRUN_ANYWHERE: Final = re.compile(r"(?:^|[\s;&|(])(?:srun|mpirun|mpiexec)(?=\s|$)")


@dataclass(frozen=True, slots=True)
class Body:
    """A script's commands: the text, and the one step that srun starts, if so.

    ``before`` is the text ahead of a single srun that ends the script, ``step`` what
    that srun starts and ``step_options`` its options; None where the script is not of
    that shape. ``starters`` counts the calls of srun, mpirun and mpiexec.
    ``interpreter`` is the program of the #! line, where it is no shell.
    """

    text: str
    starters: int
    before: str = ""
    step: str | None = None
    step_options: Component = ()
    interpreter: tuple[str, ...] = ()


def parse_body(script: str) -> Body:
    """Return the commands of a batch script, without the #! and #SBATCH lines."""
    interpreter = _interpreter(script)
    if interpreter:
        return Body(script, 0, interpreter=interpreter)
    lines = _commands(script)
    text = "\n".join(lines).strip() + "\n"
    starters = sum(len(_SRUN_ANYWHERE.findall(line)) for line in lines if _code(line))
    last = next((line for line in reversed(lines) if _code(line)), "")
    call = _SRUN.match(last)
    if starters != 1 or call is None or re.search(r"[;&|]\s*$|&&|\|\|", last):
        return Body(text, starters)
    options, step = _split_call(last[call.end() :])
    before = "\n".join(lines[: len(lines) - lines[::-1].index(last) - 1]).strip()
    return Body(text, starters, before, step, options)


def _commands(script: str) -> list[str]:
    """Return the logical lines (joined where they say so), less #! and #SBATCH."""
    joined = script.replace("\\\n", " ")
    lines = joined.split("\n")
    if lines and lines[0].startswith("#!"):
        lines = lines[1:]
    return [line for line in lines if not line.startswith(("#SBATCH", "#SLURM"))]


def _interpreter(script: str) -> tuple[str, ...]:
    """Return the words of a #! line that names no shell."""
    match = re.match(r"#!\s*(\S+)[ \t]*(.*)", script)
    words = (match[1], *match[2].split()) if match else ()
    program = next((w for w in words if not w.endswith(("/env", "-S"))), "")
    return () if PurePath(program).name in _SHELLS else words


def _code(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _split_call(rest: str) -> tuple[Component, str]:
    """Return srun's options and the text of the program, untouched by quoting."""
    found = list(_WORD.finditer(rest))
    given, end = parse_options([word[0] for word in found], SRUN)
    return given, rest[found[end].start() :].strip() if end < len(found) else ""
