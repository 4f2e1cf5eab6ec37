"""The pass-through for sbatch's other options, and those that may not pass."""

from __future__ import annotations

import difflib
import re
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Field

from hpcplat.jobs.fields import refuse

# Option of sbatch -> the spec's own field for it.
OWN_FIELD: Final = {
    "array": "array",
    "chdir": "environment.folder",
    "constraint": "resources.constraint",
    "cpus-per-task": "resources.cpus_per_task",
    "dependency": "dependencies",
    "exclude": "resources.exclude",
    "exclusive": "resources.exclusive",
    "gpus": "resources.gpus_per_node",
    "gpus-per-node": "resources.gpus_per_node",
    "gpus-per-socket": "resources.gpus_per_node",
    "gpus-per-task": "resources.gpus_per_node",
    "gres": "resources.gpus_per_node",
    "job-name": "name",
    "mem": "resources.memory",
    "mem-per-cpu": "resources.memory",
    "mem-per-gpu": "resources.memory",
    "no-requeue": "recovery.requeue",
    "nodes": "resources.nodes",
    "ntasks": "resources.tasks_per_node",
    "ntasks-per-gpu": "resources.tasks_per_node",
    "ntasks-per-node": "resources.tasks_per_node",
    "partition": "resources.partition",
    "qos": "resources.qos",
    "requeue": "recovery.requeue",
    "reservation": "resources.reservation",
    "signal": "recovery.warning",
    "time": "resources.time",
}

# What identifies the job, carries its output and its environment, or changes the
# answer of sbatch itself: these are hpcplat's to say.
KEPT: Final = frozenset(
    {
        "account",
        "clusters",
        "comment",
        "container",
        "error",
        "export",
        "export-file",
        "get-user-env",
        "gid",
        "help",
        "hold",
        "ignore-pbs",
        "input",
        "kill-on-invalid-dep",
        "no-kill",
        "open-mode",
        "output",
        "parsable",
        "quiet",
        "test-only",
        "time-min",
        "uid",
        "usage",
        "verbose",
        "version",
        "wait",
        "wrap",
    }
)

# sbatch's other long options (22.05 to 26.05), which pass.
PASSED: Final = frozenset(
    {
        "acctg-freq",
        "batch",
        "bb",
        "bbf",
        "begin",
        "cluster-constraint",
        "consolidate-segments",
        "container-id",
        "contiguous",
        "core-spec",
        "cores-per-socket",
        "cpu-freq",
        "cpus-per-gpu",
        "deadline",
        "delay-boot",
        "distribution",
        "extra",
        "extra-node-info",
        "gpu-bind",
        "gpu-freq",
        "gres-flags",
        "hint",
        "licenses",
        "mail-type",
        "mail-user",
        "mcs-label",
        "mem-bind",
        "mincpus",
        "network",
        "nice",
        "nodefile",
        "nodelist",
        "ntasks-per-core",
        "ntasks-per-socket",
        "oom-kill-step",
        "overcommit",
        "oversubscribe",
        "power",
        "prefer",
        "priority",
        "profile",
        "propagate",
        "reboot",
        "resv-ports",
        "segment",
        "sockets-per-node",
        "spread-job",
        "stepmgr",
        "switches",
        "thread-spec",
        "threads-per-core",
        "tmp",
        "tres-bind",
        "tres-per-task",
        "use-min-nodes",
        "wait-all-nodes",
        "wckey",
    }
)

_VALUE: Final = re.compile(r"[^\0-\x1f\x7f]*")


def _name(text: str) -> str:
    name = text.removeprefix("--").replace("_", "-")
    if name in OWN_FIELD:
        refuse(f"sbatch --{name} has a field of its own.", f"Use {OWN_FIELD[name]}.")
    if name in KEPT:
        refuse(f"sbatch --{name} is hpcplat's to set.", "Leave it out.")
    if name not in PASSED:
        # sbatch takes any unambiguous beginning of an option: --outp is --output.
        near = _nearest(name)
        hint = f"The nearest is {near}." if near else "See sbatch --help."
        refuse(f"{text!r} is not a long option of sbatch.", hint)
    return name


def _nearest(name: str) -> str:
    near = difflib.get_close_matches(name, sorted(PASSED), 1)
    return near[0] if near else ""


def _value(value: Any) -> Any:  # noqa: ANN401 - whatever stood in the file
    if value is False:
        refuse("An option that is off is left out.", "Remove it.")
    if value is True:
        return value
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str) and not _VALUE.fullmatch(value):
        refuse(f"{value!r} holds a control character.", "Leave it out.")
    return value


OptionName = Annotated[str, AfterValidator(_name)]
OptionValue = Annotated[
    Annotated[str, Field(max_length=1024)] | bool, BeforeValidator(_value)
]


def arguments(options: dict[str, str | bool]) -> list[str]:
    """Return the options as sbatch's arguments, in the order given."""
    return [
        f"--{name}" if value is True else f"--{name}={value}"
        for name, value in options.items()
    ]
