"""Our reading of #SBATCH lines against the real sbatch's, on lines made by chance."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from hpcplat import processes
from hpcplat.cluster import Cluster
from hpcplat.errors import InvalidError
from hpcplat.processes import Completed
from hpcplat.sbatchline.commandline import parse, value_of
from hpcplat.sbatchline.directives import parse_script
from hpcplat.sbatchline.precedence import from_environment, request

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

# What matters to quoting, and some letters; a comment is any text.
TEXT = st.text(st.sampled_from("ab \\\"'#:=\t-%"), min_size=1, max_size=12)


@pytest.fixture(scope="module")
def held(cluster: Cluster) -> Iterator[Cluster]:
    yield cluster
    cluster.run("scancel", "--me")


def sbatch(cluster: Cluster, script: str, *words: str, **variables: str) -> Completed:
    """Run the real sbatch with a script on its standard input; the job is held."""
    env = {**os.environ, **cluster.environment(), **variables}
    argv = ["sbatch", "--parsable", "-H", *words]
    return processes.run(argv, timeout=30, stdin=script, env=env)


def comment_of(cluster: Cluster, script: str) -> str | None:
    """Return the comment of the job that the real sbatch makes of a script."""
    done = sbatch(cluster, script)
    if not done.ok:
        return None
    shown = cluster.run("squeue", "-h", "-o", "%k", "-j", done.stdout.strip())
    return shown.stdout.removesuffix("\n")


@settings(
    max_examples=60,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(before=TEXT, after=TEXT)
def test_quotes_and_escapes(held: Cluster, before: str, after: str) -> None:
    line = f"--comment={before} {after}"
    assume("\\ " not in line)  # read in another way before 24.05
    script = f"#!/bin/sh\n#SBATCH {line}\n"
    real = comment_of(held, script)
    try:
        (component,) = parse_script(script)
    except InvalidError:
        assert real is None
        return
    if real is None or component[0].name != "comment" or len(component) > 1:
        return  # another option came about by chance: sbatch judges its value
    assert real == value_of(component, "comment")


@pytest.mark.parametrize(
    ("script", "environment", "words"),
    [
        ("#SBATCH -t 7", {}, []),
        ("#SBATCH -t 7", {"SBATCH_TIMELIMIT": "8"}, []),
        ("#SBATCH -t 7", {"SBATCH_TIMELIMIT": "8"}, ["-t", "9"]),
        ("#SBATCH -t 7", {"SBATCH_TIMELIMIT": "8"}, ["--time", "9"]),
        ("# note\n\n#SBATCH -t 7\necho\n#SBATCH -t 8", {}, []),
        ("#SBATCH -Ht7", {}, []),
    ],
)
def test_what_goes_before_what(
    held: Cluster, script: str, environment: dict[str, str], words: list[str]
) -> None:
    text = f"#!/bin/sh\n{script}\n"
    done = sbatch(held, text, *words, **environment)
    shown = held.run("squeue", "-h", "-o", "%l", "-j", done.stdout.strip()).stdout
    asked = request(parse(words), parse_script(text), from_environment(environment))
    assert shown.strip() == f"{asked.value('time')}:00"
