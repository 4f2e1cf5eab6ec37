"""sbatch's file name patterns."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcplat.dropin.output import Place, expanded, output_file
from hpcplat.sbatchline.commandline import parse
from hpcplat.sbatchline.precedence import request

PLACE = Place(12, "train", "alice", node="n3")


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("%x-%j.out", "train-12.out"),
        ("%5j", "00012"),
        ("%u/%N/%t", "alice/n3/0"),
        ("100%%-%j", "100%-12"),
        ("%q", "%q"),
        (r"\%j", "%j"),
    ],
)
def test_patterns(pattern: str, name: str) -> None:
    assert expanded(pattern, PLACE) == name


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (["x.sh"], "/home/me/slurm-12.out"),
        (["-D", "/data", "x.sh"], "/data/slurm-12.out"),
        (["-o", "/logs/%j", "x.sh"], "/logs/12"),
        (["-D", "sub", "-o", "log", "x.sh"], "/home/me/sub/log"),
    ],
)
def test_where_the_output_goes(words: list[str], path: str) -> None:
    asked = request(parse(words), (), ())
    assert output_file(asked, Path("/home/me"), PLACE) == Path(path)


def test_an_array_task() -> None:
    asked = request(parse(["-a", "0-3", "x.sh"]), (), ())
    place = Place(12, "train", "alice", task=3)
    assert output_file(asked, Path("/m"), place) == Path("/m/slurm-12_3.out")
