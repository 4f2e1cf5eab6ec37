"""The one table of sbatch's options: every long and short name of 22.05 to 26.05."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final


class Takes(Enum):
    """Whether an option is followed by a value (getopt_long(3))."""

    NOTHING = "nothing"
    VALUE = "value"
    MAYBE = "maybe"  # only glued on: --requeue=expedite, -k=off


NOTHING: Final = Takes.NOTHING
MAYBE: Final = Takes.MAYBE


@dataclass(frozen=True, slots=True)
class Option:
    """One option of sbatch.

    ``env`` are the input environment variables that set it (sbatch(1)). ``carried``
    says that in a heterogeneous job the value of a component holds for the later ones
    too, unless they give their own. ``since`` and ``until`` are the releases that have
    it, where not all of 22.05 to 26.05 do. ``spank`` marks a site's plugin option.
    """

    name: str
    short: str = ""
    takes: Takes = Takes.VALUE
    env: tuple[str, ...] = ()
    carried: bool = False
    since: tuple[int, int] = (22, 5)
    until: tuple[int, int] | None = None
    spank: bool = False

    @property
    def flag(self) -> str:
        """Return it as a person writes it: ``--gpus-per-node``."""
        return f"--{self.name}"


# Two names for one thing, and the one that stands for both here.
SAME: Final = {"cluster": "clusters", "tasks-per-node": "ntasks-per-node"}

# Of each group only the last one given counts, whatever the source it comes from.
EXCLUSIVE: Final = (
    frozenset({"mem", "mem-per-cpu", "mem-per-gpu"}),
    frozenset({"requeue", "no-requeue"}),
)

# Options of 22.05 to 26.05, from sbatch(1) and the program's own tables.
_ROWS: Final = (
    Option("account", short="A", env=("SBATCH_ACCOUNT",), carried=True),
    Option("acctg-freq", env=("SBATCH_ACCTG_FREQ",), carried=True),
    Option("array", short="a", env=("SBATCH_ARRAY_INX",), carried=True),
    Option("autocomplete", carried=True, since=(23, 2)),
    Option("batch", env=("SBATCH_BATCH",), carried=True),
    Option("bb", env=("SBATCH_BURST_BUFFER",)),
    Option("bbf", carried=True),
    Option("begin", short="b", carried=True),
    Option("chdir", short="D", carried=True),
    Option("cluster", carried=True),
    Option("cluster-constraint", env=("SBATCH_CLUSTER_CONSTRAINT",), carried=True),
    Option(
        "clusters",
        short="M",
        env=(
            "SBATCH_CLUSTERS",
            "SLURM_CLUSTERS",
        ),
        carried=True,
    ),
    Option("comment", carried=True),
    Option(
        "consolidate-segments",
        takes=NOTHING,
        env=("SBATCH_CONSOLIDATE_SEGMENTS",),
        since=(25, 11),
    ),
    Option("constraint", short="C", env=("SBATCH_CONSTRAINT",)),
    Option("container", env=("SBATCH_CONTAINER",), carried=True),
    Option("container-id", env=("SBATCH_CONTAINER_ID",), carried=True, since=(23, 2)),
    Option(
        "container-type", env=("SBATCH_CONTAINER_TYPE",), carried=True, since=(26, 5)
    ),
    Option("context", carried=True),
    Option("contiguous", takes=NOTHING),
    Option("core-spec", short="S", env=("SBATCH_CORE_SPEC",)),
    Option("cores-per-socket"),
    Option("cpu-freq", env=("SBATCH_CPU_FREQ_REQ",)),
    Option("cpus-per-gpu", env=("SBATCH_CPUS_PER_GPU",)),
    Option("cpus-per-task", short="c"),
    Option("deadline", carried=True),
    Option("delay-boot", env=("SBATCH_DELAY_BOOT",), carried=True),
    Option("dependency", short="d", carried=True),
    Option("distribution", short="m", env=("SBATCH_DISTRIBUTION",)),
    Option("error", short="e", env=("SBATCH_ERROR",), carried=True),
    Option("exclude", short="x", carried=True),
    Option("exclusive", takes=MAYBE, env=("SBATCH_EXCLUSIVE",)),
    Option("export", env=("SBATCH_EXPORT",), carried=True),
    Option("export-file", carried=True),
    Option("external", takes=NOTHING, since=(25, 5)),
    Option("extra", carried=True, since=(23, 2)),
    Option("extra-node-info", short="B"),
    Option("get-user-env", takes=MAYBE, env=("SBATCH_GET_USER_ENV",), carried=True),
    Option("gid", carried=True),
    Option("gpu-bind", env=("SBATCH_GPU_BIND",)),
    Option("gpu-freq", env=("SBATCH_GPU_FREQ",)),
    Option("gpus", short="G", env=("SBATCH_GPUS",)),
    Option("gpus-per-node", env=("SBATCH_GPUS_PER_NODE",)),
    Option("gpus-per-socket", env=("SBATCH_GPUS_PER_SOCKET",)),
    Option("gpus-per-task", env=("SBATCH_GPUS_PER_TASK",)),
    Option("gres", env=("SBATCH_GRES",)),
    Option("gres-flags", env=("SBATCH_GRES_FLAGS",)),
    Option("help", short="h", takes=NOTHING, carried=True),
    Option(
        "hint",
        env=(
            "SLURM_HINT",
            "SBATCH_HINT",
        ),
    ),
    Option("hold", short="H", takes=NOTHING, carried=True),
    Option("ignore-pbs", takes=NOTHING, env=("SBATCH_IGNORE_PBS",), carried=True),
    Option("input", short="i", env=("SBATCH_INPUT",), carried=True),
    Option("job-name", short="J", env=("SBATCH_JOB_NAME",), carried=True),
    Option("kill-on-invalid-dep", carried=True),
    Option("licenses", short="L"),
    Option("mail-type"),
    Option("mail-user"),
    Option("mcs-label", carried=True),
    Option("mem", env=("SBATCH_MEM_PER_NODE",), carried=True),
    Option("mem-bind", env=("SBATCH_MEM_BIND",)),
    Option("mem-per-cpu", env=("SBATCH_MEM_PER_CPU",)),
    Option("mem-per-gpu", env=("SBATCH_MEM_PER_GPU",)),
    Option("mem-update", carried=True, since=(26, 5)),
    Option("mincpus"),
    Option("network", env=("SBATCH_NETWORK",)),
    Option("nice", takes=MAYBE, carried=True),
    Option("no-kill", short="k", takes=MAYBE, env=("SBATCH_NO_KILL",), carried=True),
    Option("no-requeue", takes=NOTHING, env=("SBATCH_NO_REQUEUE",), carried=True),
    Option("nodefile", short="F"),
    Option("nodelist", short="w"),
    Option("nodes", short="N"),
    Option("ntasks", short="n"),
    Option("ntasks-per-core"),
    Option("ntasks-per-gpu"),
    Option("ntasks-per-node"),
    Option("ntasks-per-socket"),
    Option("ntasks-per-tres"),
    Option("oom-kill-step", takes=MAYBE, carried=True, since=(24, 11)),
    Option("open-mode", env=("SBATCH_OPEN_MODE",), carried=True),
    Option("output", short="o", env=("SBATCH_OUTPUT",), carried=True),
    Option("overcommit", short="O", takes=NOTHING, env=("SBATCH_OVERCOMMIT",)),
    Option("oversubscribe", short="s", takes=NOTHING),
    Option("parsable", takes=NOTHING, carried=True),
    Option("partition", short="p", env=("SBATCH_PARTITION",)),
    Option("power", env=("SBATCH_POWER",), until=(23, 11)),
    Option("prefer", carried=True),
    Option("priority", carried=True),
    Option("profile", env=("SBATCH_PROFILE",), carried=True),
    Option("propagate", takes=MAYBE, carried=True),
    Option("qos", short="q", env=("SBATCH_QOS",), carried=True),
    Option("quiet", short="Q", takes=NOTHING, carried=True),
    Option("reboot", takes=NOTHING, carried=True),
    Option("requeue", takes=MAYBE, env=("SBATCH_REQUEUE",), carried=True),
    Option("reservation", env=("SBATCH_RESERVATION",), carried=True),
    Option("resources", since=(25, 11)),
    Option("resv-ports", takes=MAYBE, since=(24, 5)),
    Option("segment", env=("SBATCH_SEGMENT_SIZE",), since=(24, 5)),
    Option("signal", env=("SBATCH_SIGNAL",), carried=True),
    Option("sockets-per-node"),
    Option("spread-job", takes=NOTHING, env=("SBATCH_SPREAD_JOB",)),
    Option(
        "spread-segments",
        takes=NOTHING,
        env=("SBATCH_SPREAD_SEGMENTS",),
        since=(25, 11),
    ),
    Option("stepmgr", takes=NOTHING, carried=True, since=(24, 5)),
    Option("switches", env=("SBATCH_REQ_SWITCH",)),
    Option("tasks-per-node"),
    Option("test-only", takes=NOTHING, carried=True),
    Option("thread-spec", env=("SBATCH_THREAD_SPEC",)),
    Option("threads-per-core", env=("SBATCH_THREADS_PER_CORE",)),
    Option("time", short="t", env=("SBATCH_TIMELIMIT",), carried=True),
    Option("time-min", carried=True),
    Option("tmp"),
    Option("tres-bind", env=("SBATCH_TRES_BIND",), since=(23, 11)),
    Option("tres-per-task", env=("SBATCH_TRES_PER_TASK",), since=(23, 2)),
    Option("uid", carried=True),
    Option("usage", takes=NOTHING, carried=True),
    Option("use-min-nodes", takes=NOTHING, env=("SBATCH_USE_MIN_NODES",)),
    Option("verbose", short="v", takes=NOTHING, env=("SBATCH_DEBUG",), carried=True),
    Option("version", short="V", takes=NOTHING, carried=True),
    Option("wait", short="W", takes=NOTHING, env=("SBATCH_WAIT",), carried=True),
    Option("wait-all-nodes", env=("SBATCH_WAIT_ALL_NODES",), carried=True),
    Option("wckey", env=("SBATCH_WCKEY",), carried=True),
    Option("wrap", carried=True),
)


class Options:
    """The options that one sbatch has: the table, and what a site's plugins add."""

    def __init__(self, rows: Iterable[Option] = _ROWS) -> None:
        self.rows: tuple[Option, ...] = tuple(rows)
        self.by_name: Mapping[str, Option] = {row.name: row for row in self.rows}
        self.by_short: Mapping[str, Option] = {
            row.short: row for row in self.rows if row.short
        }

    def named(self, name: str) -> Option | None:
        """Return the option of this long name, or of the one that begins so.

        Like getopt_long: an exact name first, else the only name that begins with it.
        """
        exact = self.by_name.get(name)
        if exact is not None or not name:
            return exact
        found = [row for row in self.rows if row.name.startswith(name)]
        return found[0] if len(found) == 1 else None

    def with_plugins(self, help_text: str) -> Options:
        """Return these options and those that only this site's ``--help`` shows."""
        known = {*self.by_name}
        return Options(
            (*self.rows, *(o for o in parse_help(help_text) if o.name not in known))
        )


_HELP_LINE: Final = re.compile(
    r"^\s{1,8}(?:-(?P<short>\w),)?\s*--(?P<name>[a-z0-9][\w-]*)(?P<value>\[?=)?"
)


def parse_help(text: str) -> tuple[Option, ...]:
    """Return the options that ``sbatch --help`` lists, SPANK plugins' included.

    ``--name=value`` takes a value, ``--name[=value]`` may, ``--name`` does not.
    """
    takes = {None: Takes.NOTHING, "=": Takes.VALUE, "[=": Takes.MAYBE}
    return tuple(
        Option(
            match["name"],
            short=match["short"] or "",
            takes=takes[match["value"]],
            spank=True,
        )
        for match in map(_HELP_LINE.match, text.splitlines())
        if match
    )


KNOWN: Final = Options()
