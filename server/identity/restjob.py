"""A batch script as slurmrestd takes it: its #SBATCH lines as fields of JSON. Pure.

slurmrestd reads no #SBATCH line. What the table here does not know is refused: an
option that got lost would make another job of it.
"""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from hpcplat.errors import InvalidError
from hpcplat.quantities import parse_duration, parse_memory
from hpcplat.runfiles import RunFile
from hpcplat.runfolder import RunFolder
from hpcplat.sbatchline.directives import parse_script

Fields = dict[str, Any]
_SIGNAL: Final = re.compile(r"B:(?P<name>[A-Z0-9]+)@(?P<seconds>[0-9]+)")
_PUT: Final = (
    'put() { t=$(mktemp "$1.XXXXXX"); base64 -d >"$t"; chmod "$2" "$t";'
    ' mv -f "$t" "$1"; }'
)
# Whose folder it is could put another script in the place of ours.
_OWN: Final = (
    'own() { [ ! -L "$1" ] && case $(stat -c %u "$1") in 0|"$EUID") ;;'
    ' *) echo "$1 belongs to somebody else" >&2; exit 1 ;; esac; }'
)
_LOOK: Final = 5  # seconds
_OLD: Final = (0, 0, 38)  # the last version with flat values


def description(
    script: str, folder: str, path: str, version: tuple[int, ...]
) -> Fields:
    """Return the ``job`` object of a submission; InvalidError for an unknown option.

    ``path``: the job's PATH; nothing else of an environment is given.
    """
    is_new = version > _OLD
    variables = {"PATH": path}
    job: Fields = {
        "current_working_directory": folder,
        "environment": [f"{k}={v}" for k, v in variables.items()]
        if is_new
        else variables,
        # The run folder is made by the script: Slurm itself can't write there before.
        "standard_output": "/dev/null",
        "standard_error": "/dev/null",
    }
    for component in parse_script(script):
        for given in component:
            job |= _field(given.name, given.value or "", is_new=is_new)
    return job


def _field(name: str, value: str, *, is_new: bool) -> Fields:
    name = name.lstrip("-")
    if name in _IGNORED:
        return {}
    make = (_NEW if is_new else _FLAT).get(name) or _BOTH.get(name)
    if make is None:
        raise InvalidError(
            f"--{name} can't be given through slurmrestd.",
            "Leave it out, or have the site submit in another way.",
        )
    return make(value)


def warning(script: str, version: tuple[int, ...]) -> str:
    """Return the shell line that does what --signal=B:NAME@SECONDS asks for.

    Empty where slurmrestd takes the option itself: 0.0.38 refuses the B:, though its
    own description has it.
    """
    given = {
        option.name.lstrip("-"): option.value or ""
        for component in parse_script(script)
        for option in component
    }
    if version > _OLD or "signal" not in given:
        return ""
    name, seconds = _signal(given["signal"])
    limit = int(parse_duration(given["time"]).total_seconds())
    looks = max((limit - seconds) // _LOOK, 1)
    # It looks whether the job is there still: no process is to outlive it for long.
    return (
        f"(for ((i = 0; i < {looks}; i++)); do sleep {_LOOK}; kill -0 $$ || exit; done;"
        f" kill -s {name} $$) >/dev/null 2>&1 &"
    )


def carrying(files: Sequence[RunFile], folder: RunFolder, warns: str = "") -> str:
    """Return a script that writes the run folder as the job's user, then becomes it.

    The service can't write where the person can; so the files travel in the script.
    ``warns``: a line of its own, of ``warning``.
    """
    root = shlex.quote(str(folder.root))
    lines = [
        "#!/bin/bash",
        "set -eu",
        f"mkdir -p {shlex.quote(str(folder.logs))} {shlex.quote(str(folder.metrics))}",
        _OWN,
        f"own {shlex.quote(str(folder.root.parent))}; own {root}",
        _PUT,
    ]
    for file in files:
        data = base64.b64encode(file.content.encode()).decode()
        lines.append(f"put {shlex.quote(str(file.path))} {file.mode:o} <<<{data}")
    log = shlex.quote(f"{folder.logs}/slurm.log")
    lines += [
        f"cd {root}",
        f"exec >>{log} 2>&1",
        warns,
        f"exec /bin/bash {shlex.quote(str(files[-1].path))}",
        "",
    ]
    return "\n".join(lines)


def _number(name: str) -> Callable[[str], Fields]:
    return lambda value: {name: int(value)}


def _text(name: str) -> Callable[[str], Fields]:
    return lambda value: {name: value}


def _flag(name: str, value: object) -> Callable[[str], Fields]:
    return lambda _: {name: value}


def _set(number: int) -> Mapping[str, object]:
    return {"set": True, "infinite": False, "number": number}


def _minutes(value: str) -> int:
    seconds = int(parse_duration(value).total_seconds())
    return -(-seconds // 60)


def _nodes(value: str) -> Fields:
    low, _, high = value.partition("-")
    return {"nodes": [int(low), int(high or low)]}


def _signal(value: str) -> tuple[str, int]:
    match = _SIGNAL.fullmatch(value)
    if match is None:
        raise InvalidError(f"--signal={value} can't be read.", "Write B:USR2@60.")
    return match["name"], int(match["seconds"])


def _new_signal(value: str) -> Fields:
    name, seconds = _signal(value)
    return {
        "kill_warning_flags": ["BATCH_JOB"],
        "kill_warning_signal": name,
        "kill_warning_delay": _set(seconds),
    }


def _new_gres(value: str) -> Fields:
    return {"tres_per_node": ",".join(f"gres/{each}" for each in value.split(","))}


_IGNORED: Final = frozenset(
    {"chdir", "output", "error", "open-mode", "export", "input"}
)
_BOTH: Final[Mapping[str, Callable[[str], Fields]]] = {
    "account": _text("account"),
    "array": _text("array"),
    "comment": _text("comment"),
    "constraint": _text("constraints"),
    "cpus-per-task": _number("cpus_per_task"),
    "dependency": _text("dependency"),
    "job-name": _text("name"),
    "kill-on-invalid-dep": lambda v: {"kill_on_invalid_dependency": v == "yes"},
    "no-requeue": _flag("requeue", value=False),
    "ntasks-per-node": _number("tasks_per_node"),
    "partition": _text("partition"),
    "qos": _text("qos"),
    "requeue": _flag("requeue", value=True),
    "reservation": _text("reservation"),
}
_FLAT: Final[Mapping[str, Callable[[str], Fields]]] = {
    "exclusive": _flag("exclusive", "true"),
    "gpus-per-node": _text("gpus_per_node"),
    "gres": _text("gres"),
    "mem": lambda v: {"memory_per_node": parse_memory(v)},
    "no-kill": _flag("no_kill", value=True),
    "nodes": _nodes,
    "signal": lambda _: {},  # see warning()
    "time": lambda v: {"time_limit": _minutes(v)},
}
_NEW: Final[Mapping[str, Callable[[str], Fields]]] = {
    "exclude": lambda v: {"excluded_nodes": v.split(",")},
    "exclusive": _flag("shared", ["none"]),
    "gpus-per-node": lambda v: _new_gres(f"gpu:{v}"),
    "gres": _new_gres,
    "mem": lambda v: {"memory_per_node": _set(parse_memory(v))},
    "no-kill": _flag("kill_on_node_fail", value=False),
    "nodes": _text("nodes"),
    "signal": _new_signal,
    "time": lambda v: {"time_limit": _set(_minutes(v))},
}
