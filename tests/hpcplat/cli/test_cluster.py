"""`hpcplat cluster`, word by word."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hpcplat.cli.main import main
from hpcplat.cluster import ClusterSpec, down
from hpcplat.errors import ExitCode


@pytest.fixture
def folder(new_spec: Callable[..., ClusterSpec]) -> Iterator[Path]:
    folder = new_spec().folder
    yield folder
    down(folder)


@pytest.fixture
def say(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> Callable[..., tuple[int, str]]:
    """Run a command on the cluster in the folder; return its status and its words."""

    def run(*words: str) -> tuple[int, str]:
        status = main(["cluster", *words, "--folder", str(folder)])
        spoken = capsys.readouterr()
        return status, spoken.out + spoken.err

    return run


@pytest.mark.slurm
@pytest.mark.slow
def test_the_life_of_a_cluster(
    say: Callable[..., tuple[int, str]], folder: Path
) -> None:
    status, words = say("up", "--nodes=1:a100x2,1:l40sx1", "--spares=0", "--name=small")
    assert status == ExitCode.DONE
    assert f"The cluster 'small' is up: 2 nodes in {folder}." in words
    assert f'eval "$(hpcplat cluster env --folder {folder})"' in words

    assert say("env") == (0, f"export SLURM_CONF={folder}/etc/slurm.conf\n")
    lines = [line.split("\t") for line in say("status")[1].splitlines()]
    assert [line[:3] for line in lines] == [
        ["n1", "a100:2", "idle"],
        ["n2", "l40s:1", "idle"],
    ]
    status, words = say("kill-node", "n1")
    assert words == "n1 is dead: 1 process killed. Slurm finds out by itself.\n"
    report = json.loads(say("status", "--json")[1])
    assert report["nodes"][0]["pid"] is None
    assert report["services"]["slurmctld"] > 0
    assert say("revive-node", "n1") == (0, "n1 is back.\n")

    status, words = say("up")
    assert status == ExitCode.MENDABLE
    assert "other settings" in words
    assert say("down") == (
        0,
        f"The cluster in {folder} is down; nothing of it is left.\n",
    )
    assert not folder.exists()
    assert say("down") == (0, f"No cluster is in {folder}.\n")


def test_nothing_there(say: Callable[..., tuple[int, str]], folder: Path) -> None:
    for words in (["status"], ["env"], ["kill-node", "n1"], ["revive-node", "n1"]):
        status, answer = say(*words)
        assert status == ExitCode.MENDABLE
        assert answer == (
            f"hpcplat: No cluster is in {folder}. "
            "Bring one up with hpcplat cluster up.\n"
        )


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--nodes=two"], "not a group of nodes"),
        (["--nodes=0"], "between 1 and 100"),
        (["--gpus-per-node=-1"], "between 0 and 64"),
        (["--set=KillWait"], "Write --set Name=value"),
        (["--set=SlurmUser=me"], "not yours to set"),
        (["--partition=A B"], "partition's name"),
    ],
)
def test_bad_words_get_one_line(
    say: Callable[..., tuple[int, str]], words: list[str], complaint: str
) -> None:
    status, answer = say("up", *words)
    assert status == ExitCode.MENDABLE
    assert complaint in answer
    assert answer.count("\n") == 1


def test_an_unknown_debian(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "root", "woody"]) == ExitCode.MENDABLE
    assert "Choose one of bookworm, trixie, sid." in capsys.readouterr().err
