"""The CPU stand-in for CUDA: which lines of Megatron it answers, and when it refuses.

The list of lines is Megatron-Core 0.16.1's. Another release shows here what is new: look
at each new line, then add it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
core = pytest.importorskip("megatron.core")

from launchers.megatron import cpu

RECORDER = str(Path(__file__).with_name("record_hits.py"))
KNOWN = Path(__file__).with_name("answered_lines.json")


def test_it_refuses_where_cuda_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(RuntimeError, match="CUDA is there"):
        cpu.install()


def test_torch_itself_stays_as_it_is() -> None:
    from megatron.core import utils

    import launchers.megatron.core  # noqa: F401

    assert torch.zeros.__module__ != "launchers.megatron.cpu"
    with pytest.raises((RuntimeError, AssertionError)):
        torch.zeros(1, device="cuda")
    assert vars(utils)["torch"].zeros(1, device="cuda").device.type == "cpu"
    assert vars(utils)["torch"].nn is torch.nn
    assert vars(utils)["torch"].Tensor.cuda is torch.Tensor.cuda


LAYOUTS: list[tuple[int, dict[str, Any]]] = [
    (2, {"parallelism": {"pipeline": 2}}),
    (
        2,
        {
            "preset": "llama",
            "parallelism": {"tensor": 2, "sequence_parallel": True},
            "settings": {
                "precision": {"format": "bf16"},
                "recompute": {"granularity": "full"},
                "model": {"ffn_hidden_size": 64},
            },
        },
    ),
    (
        2,
        {
            "settings": {
                "precision": {"format": "fp16"},
                "optimizer": {"distributed": True, "overlap_grad_reduce": True},
            }
        },
    ),
    (2, {"parallelism": {"pipeline": 2, "virtual_pipeline": 2}}),
    (
        2,
        {
            "settings": {"model": {"num_moe_experts": 2}},
            "parallelism": {"expert": 2},
        },
    ),
]


@pytest.mark.slow
def test_it_answers_the_known_lines_and_no_others(
    train: Any,  # noqa: ANN401
    merge: Any,  # noqa: ANN401
    tmp_path: Path,
) -> None:
    if core.__version__ != "0.16.1":
        pytest.skip(f"the list is of 0.16.1; this is {core.__version__}")
    found: set[tuple[str, int]] = set()
    for number, (world, changes) in enumerate(LAYOUTS):
        folder = tmp_path / str(number)
        short = {"settings": {"steps": 2}, "checkpoint": {"every": 2}}
        trained = train(folder, world, merge(changes, short), (RECORDER,))
        assert trained.ok, trained.log()
        for rank in range(world):
            lines = json.loads((folder / f"hits-{rank}.json").read_text())
            found |= {(file, line) for file, line in lines}
    known = {(file, line) for file, line in json.loads(KNOWN.read_text())}
    assert sorted(found - known) == [], "new lines"
    assert sorted(known - found) == [], "lines that are answered no more"
