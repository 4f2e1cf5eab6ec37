"""Scripts of many shapes give the same through the shim as through the real sbatch."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hpcplat.cluster import Cluster
from hpcplat.dropin import shim

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

TELL = r"""
printf '<%s>' "$0" "$@" | sed 's/[0-9]\{3,\}/N/g'; echo
pwd; umask; ulimit -n
env | grep -v -E '^(SLURM_.*(JOBID|JOB_ID|_PID|HET_SIZE|GROUP)|HPC|_=|TMPDIR)' | sort
"""
SCRIPT = f"#!/bin/sh\n#SBATCH --job-name='two words' -t 1\n{TELL}"
HET = (
    "#!/bin/sh\n#SBATCH -J het -t 1 -N1\n#SBATCH hetjob\n#SBATCH -N1 --gpus-per-node=1\n"
    "srun --het-group=0,1 sh -c 'echo $SLURM_HET_SIZE $SLURM_JOB_NUM_NODES'\n"
)


@dataclass(frozen=True)
class Case:
    """One call of sbatch."""

    words: tuple[str, ...]
    script: str = SCRIPT
    stdin: str = ""
    env: dict[str, str] = field(default_factory=dict)
    line: str = 'sbatch "$@"'


CASES = {
    "plain": Case(("job.sh",)),
    "arguments": Case(("job.sh", "a b", "--nodes=9", "$HOME", "'", "ü\n", ":")),
    "array": Case(("-a", "1-3%2", "-o", "out-%a", "job.sh")),
    "het": Case(("job.sh",), HET),
    "het on the command line": Case(("-N1", ":", "-N1", "-c2", "job.sh")),
    "wrap": Case(("--wrap", "echo hi; exit 3")),
    "stdin": Case(("-J", "fed"), stdin=SCRIPT),
    "stdin refused": Case((), stdin="echo no magic\n"),
    "variables": Case(
        ("--export=A,B=two,SLURM_TEST=1", "job.sh"),
        env={
            "A": "comma,quote'\"$x\n2",
            "SBATCH_TIMELIMIT": "2",
            "SBATCH_JOB_NAME": "by env",
            "LANG": "C",
        },
    ),
    "no variables": Case(("--export=NONE", "job.sh")),
    "export file": Case(
        ("--export-file=3", "job.sh"), line='printf "A=1\\0" | sbatch "$@" 3<&0'
    ),
    "parsable": Case(("--parsable", "-D", "/", "-o", "/dev/null", "job.sh")),
    "quiet": Case(("-Q", "--comment", "my own", "job.sh")),
    "waits and fails": Case(("--wait", "--wrap", "exit 7")),
    "python": Case(("job.sh", "x"), "#!/usr/bin/env python3\nimport sys\nprint(sys.argv[1:])\n"),
    "limits": Case(("job.sh",), line='umask 027; ulimit -n 300; sbatch "$@"'),
    "dependency": Case(("-d", "afterok:FIRST", "job.sh")),
    "held": Case(("-H", "-d", "singleton", "--begin=now+1hour", "job.sh")),
    "test only": Case(("--test-only", "job.sh")),
    "version": Case(("-V",)),
    "unknown option": Case(("--nods=2", "job.sh")),
    "unknown value": Case(("-N", "x", "job.sh")),
    "refused by Slurm": Case(("-p", "nowhere", "job.sh")),
    "too many GPUs": Case(("--gres=gpu:h100:99", "job.sh")),
    "no script": Case(("nothing.sh",)),
    "a script with a bad quote": Case(("job.sh",), "#!/bin/sh\n#SBATCH -J 'x\nhostname\n"),
    "a script that is not UTF-8": Case(("job.sh",), "#!/bin/sh\necho \udcff\n"),
}  # fmt: skip


@dataclass(frozen=True)
class Seen:
    """What a call and its job showed, less what differs from call to call."""

    status: int
    output: str
    errors: str
    files: dict[str, str]
    record: dict[str, str]


class Bench:
    """Runs cases in folders of the same name, by way of one sbatch or the other."""

    def __init__(self, cluster: Cluster, root: Path, search_path: str) -> None:
        self.root = root
        self.env = {
            **cluster.environment(),
            "PATH": search_path,
            "HOME": str(root / "home"),
        }
        self.first = ""

    def call(self, name: str, case: Case) -> subprocess.CompletedProcess[str]:
        folder = self.root / name.replace(" ", "-")
        folder.mkdir(parents=True)
        (folder / "job.sh").write_bytes(case.script.encode(errors="surrogateescape"))
        words = [word.replace("FIRST", self.first) for word in case.words]
        return subprocess.run(
            ["/bin/sh", "-c", case.line, "sh", *words],
            check=False,
            input=case.stdin,
            capture_output=True,
            text=True,
            cwd=folder,
            env={**self.env, **case.env},
            timeout=60,
        )


@pytest.fixture(scope="module")
def seen(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, tuple[Seen, Seen]]]:
    """Call every case both ways, let all jobs end, and gather what they left."""
    folder = tmp_path_factory.mktemp("dropin")
    (folder / "shim").mkdir()
    shim.install(folder / "shim")
    path = f"{cluster.environment().get('PATH', os.environ['PATH'])}"
    path = ":".join(part for part in path.split(":") if ".venv" not in part)
    ways = [
        Bench(cluster, folder / "real", path),
        Bench(cluster, folder / "ours", f"{folder / 'shim'}:{path}"),
    ]
    calls = {}
    for way in ways:
        first = way.call("first", Case(("--parsable", "--wrap", "true")))
        way.first = first.stdout.strip()
        for name, case in CASES.items():
            calls[name, way.root.name] = way.call(name, case)
    wait_for_all(cluster)
    yield {
        name: (
            gathered(cluster, ways[0], name, calls[name, "real"]),
            gathered(cluster, ways[1], name, calls[name, "ours"]),
        )
        for name in CASES
    }
    cluster.run("scancel", "--me")
    wait_for_all(cluster)


def wait_for_all(cluster: Cluster) -> None:
    """Wait until no job runs or is about to; held ones stay."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        rows = cluster.run("squeue", "-h", "-o", "%r").stdout.split("\n")
        if not any(row and row not in {"JobHeldUser", "BeginTime"} for row in rows):
            return
        time.sleep(0.3)
    raise AssertionError(cluster.run("squeue").stdout)


def gathered(
    cluster: Cluster, way: Bench, name: str, call: subprocess.CompletedProcess[str]
) -> Seen:
    job = re.search(r"(?:^|batch job )(\d+)$", call.stdout.strip())
    shown = cluster.run("scontrol", "-o", "show", "job", job[1]).stdout if job else ""
    folder = way.root / name.replace(" ", "-")

    def same(text: str) -> str:
        text = text.replace(str(way.root), "ROOT")
        text = text.replace(f"{way.root.parent / 'shim'}:", "")
        if job:  # a variable of that very value means something else, such as nice
            text = re.sub(rf"(?<!=)(?<!=-)\b{job[1]}(?=\D|$)", "JOB", text)
        text = re.sub(r"after\w+:\d+", "after:FIRST", text)
        text = re.sub(r"\bn[1-5]\b", "NODE", text)
        text = re.sub(r"slurm-\d+", "slurm-N", text)
        return re.sub(r"Job \d+ to start at \S+", "Job N to start at T", text)

    return Seen(
        call.returncode,
        same(call.stdout),
        same(call.stderr),
        {
            same(path.name): same(path.read_text(errors="replace"))
            for path in sorted(folder.iterdir())
            if path.name != "job.sh"
        },
        {
            key: value if value.isdecimal() else same(value)
            for key, value in re.findall(r"(\w+)=(\S*)", shown)
            if not re.search(
                r"Time|Host|Job_?Id|Comment|NodeList|Priority|Sid|Eval|Scheduler", key
            )
        },
    )


@pytest.mark.parametrize("name", CASES)
def test_same(name: str, seen: dict[str, tuple[Seen, Seen]]) -> None:
    real, ours = seen[name]
    assert (ours.status, ours.output, ours.errors) == (
        real.status,
        real.output,
        real.errors,
    )
    assert {k: v.splitlines() for k, v in ours.files.items()} == {
        k: v.splitlines() for k, v in real.files.items()
    }
    assert ours.record == real.record


def test_the_cases_show_something(seen: dict[str, tuple[Seen, Seen]]) -> None:
    statuses = {name: pair[0].status for name, pair in seen.items()}
    assert statuses["waits and fails"] == 7
    assert statuses["refused by Slurm"] == 1
    assert statuses["unknown option"] == 255 or statuses["unknown option"] == 1
    for name in ("plain", "arguments", "array", "het", "stdin", "variables", "limits"):
        assert len(seen[name][0].files) >= 1, name
        assert seen[name][0].record, name
