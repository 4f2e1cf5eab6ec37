"""`hpcplat layout`: what is proposed is legal, and what fits comes first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcplat.cli.main import main
from hpcplat.model_shape import named_shapes
from hpcplat.parallel import Allocation, ParallelLayout
from hpcplat.parallel_rules import Batch, Plan, broken_rules


def test_what_it_proposes_is_legal_and_what_fits_comes_first(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["layout", "llama3-70b", "--gpus", "64", "--json", "--most", "30"]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)["layouts"]
    fits = [one["fits"] for one in found]
    assert fits == sorted(fits, reverse=True)
    assert any(fits)
    for one in found:
        plan = Plan(
            ParallelLayout.model_validate(one["parallelism"]),
            Allocation(nodes=8, ranks_per_node=8),
            named_shapes()["llama3-70b"],
            Batch(512, 1, 8192),
        )
        assert broken_rules(plan) == []
        assert one["total"] <= 0.9 * 80 * 2**30 or not one["fits"]


def test_a_small_model_needs_no_splitting(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["layout", "gpt2-124m", "--gpus", "8"]) == 0
    first = capsys.readouterr().out.splitlines()[0].split("\t")
    assert first[:2] == ["data parallel only", "8"]
    assert first[-1] == "yes"


def test_a_job_spec_names_the_model_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tmp_path / "job.yaml"
    spec.write_text("name: x\nkind: train\npreset: gpt2-355m\n")
    assert main(["layout", str(spec), "--gpus", "4"]) == 0
    assert "data parallel only" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["gpt5", "--gpus", "8"], "neither a known model nor a file"),
        (["llama3-8b", "--gpus", "12"], "12 GPUs do not fill nodes of 8"),
        (["gpt2-124m", "--gpus", "7", "--global-batch", "10"], "has no legal layout"),
    ],
)
def test_what_cannot_be_is_told(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["layout", *words]) == 1
    assert told in capsys.readouterr().err
