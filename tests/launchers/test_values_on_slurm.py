"""Any text reaches every rank, and Slurm, as it was written."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpcplat import processes
from hpcplat.batchscript import render
from hpcplat.jobs import spec_of
from hpcplat.runfolder import RunFolder
from hpcplat.sitepolicy import SitePolicy

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

Submit = Callable[..., Any]  # conftest.Submitter

# Whole alphabets, and the characters that shells, Slurm and JSON trip over.
TRICKY = "'\"\\`$(){}[];&|<>#%,=!*?~\n\r\t \x01\x7f\u00e9\u2028\U0001f600"
texts = st.one_of(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    st.text(st.sampled_from(TRICKY), max_size=30),
)
KNOWN = [
    "",
    " ",
    "a,b=c",
    "$HOME",
    "$(id)",
    "`id`",
    "it's",
    '"',
    "\\",
    "a\nb\n",
    "\n",
    "%j",
    "ALL,X=1",
    "--export=NONE",
    "x" * 100_000,
]
PROGRAM = (
    "import json, os, sys\n"
    "names = [n for n in os.environ if n.startswith('V_')]\n"
    "values = {n: os.environb[n.encode()].hex() for n in names}\n"
    "words = [os.fsencode(w).hex() for w in sys.argv[1:]]\n"
    "print(json.dumps([values, words]))\n"
)


@settings(
    max_examples=3,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(texts, min_size=100, max_size=200))
def test_any_text_without_nul_reaches_every_rank(
    submit: Submit, values: list[str]
) -> None:
    """Many values in one job: as variables and as words of the command."""
    values = [*KNOWN, *values]
    variables = {f"V_{place}": value for place, value in enumerate(values)}
    job = submit(
        ["/usr/bin/python3", "-c", PROGRAM, *values],
        environment={"variables": variables},
        resources={"nodes": 2},
    ).wait()
    assert job.state() == "COMPLETED", job.verdict()
    for rank in (0, 1):
        seen, words = json.loads(job.log(rank))
        assert {n: bytes.fromhex(v).decode() for n, v in seen.items()} == variables
        assert [bytes.fromhex(word).decode() for word in words] == values


def test_a_script_gets_no_value_spoilt(submit: Submit) -> None:
    value = "a 'b' \"c\" $d `e` \\f\n#g"
    job = submit('printf %s "$V"', environment={"variables": {"V": value}}).wait()
    assert job.log(0) == value


_names = st.text(
    st.one_of(
        st.characters(exclude_categories=["C", "Zl", "Zp"]),
        st.sampled_from("'\"\\`$#%=;,! "),
    ),
    min_size=1,
    max_size=60,
).filter(lambda name: name == name.strip())


@settings(
    max_examples=30,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(_names)
def test_any_name_is_slurms_name(
    slurm_environment: dict[str, str], tmp_path: Path, name: str
) -> None:
    """The job's name, and a path with any character, through a #SBATCH line."""
    folder = RunFolder(tmp_path / name.replace("/", "_")[:40].strip(". ") / "run")
    folder.root.mkdir(parents=True, exist_ok=True)
    spec = spec_of({"name": name, "command": ["true"]})
    folder.script.write_text(render(spec, folder, SitePolicy(), "k1"))
    answer = processes.run(
        ["sbatch", "--parsable", "--hold", folder.script], timeout=20
    )
    assert answer.ok, answer.stderr
    job = answer.stdout.strip()
    try:
        shown = processes.run(
            ["squeue", "--noheader", f"--jobs={job}", "--format=%j"], timeout=20
        ).stdout
        detail = processes.run(["scontrol", "show", "job", job], timeout=20).stdout
    finally:
        processes.run(["scancel", job], timeout=20)
    assert shown.rstrip("\n") == name
    assert _field(detail, "WorkDir") == str(folder.root)
    if "%" not in str(
        folder.root
    ):  # scontrol 22.05 shows a wrong path, writes the right
        assert _field(detail, "StdOut") == str(folder.logs / "slurm.log")
    assert _field(detail, "Comment") == "hpcplat:k1"


def _field(detail: str, name: str) -> str:
    found = re.search(rf"^\s*{name}=(.*?)\s*$", detail, re.MULTILINE)
    assert found, detail
    return found[1]
