"""The built model has the parameters that were planned, and first weights by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hpcplat.allocation import RankPlacement
from hpcplat.jobs import spec_of
from hpcplat.runfolder import RunFolder
from hpcplat.training import Training, training_of

torch = pytest.importorskip("torch")
pytest.importorskip("megatron.core")

from launchers.megatron import logical, model
from launchers.megatron.groups import joined

SIZES = {
    "num_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "vocab_size": 200,
    "max_sequence_length": 16,
}


def training(preset: str, **sizes: Any) -> Training:  # noqa: ANN401
    settings = {"model": SIZES | sizes}
    spec = {"name": "x", "kind": "train", "preset": preset, "settings": settings}
    return training_of(spec_of(spec))


@contextmanager
def alone(asked: Training) -> Iterator[None]:
    """Be a world of one."""
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    folder = RunFolder(Path("/nowhere"))
    place = RankPlacement(0, 1, 0, 1, 0, "127.0.0.1", port, folder, 1, 0, "x")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MASTER_ADDR", "127.0.0.1")
        patch.setenv("MASTER_PORT", str(port))
        with joined(asked, place):
            yield


FAMILIES: list[tuple[str, dict[str, Any]]] = [
    ("gpt", {}),
    ("gpt", {"tied_embeddings": False}),
    ("llama", {}),
    ("llama", {"num_query_groups": 2, "ffn_hidden_size": 96}),
    ("llama", {"kv_channels": 16}),
    ("gpt", {"num_moe_experts": 4}),
    ("llama", {"num_moe_experts": 2, "moe_router_topk": 1}),
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("preset", "sizes"), FAMILIES)
def test_it_has_the_parameters_that_were_planned(
    preset: str, sizes: dict[str, Any]
) -> None:
    asked = training(preset, **sizes)
    with alone(asked):
        chunks = model.build(asked)
        parameters = logical.parameters(chunks)
        count = sum(p.numel() for chunk in chunks for p in chunk.parameters())
    assert count == asked.model.parameters
    covered = sum(p.last - p.first for one in parameters for p in one.parts)
    assert covered == sum(one.tensor.numel() for one in parameters)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_first_weights_have_the_deviation_that_megatron_asks_for() -> None:
    asked = training("gpt", hidden_size=64, vocab_size=1000)
    with alone(asked):
        chunks = model.build(asked)
        found = {
            part.key: one.tensor.detach().clone()
            for one in logical.parameters(chunks)
            for part in one.parts
        }
        again = model.build(asked)
        other = {
            part.key: one.tensor
            for one in logical.parameters(again)
            for part in one.parts
        }
        assert all(torch.equal(found[key], other[key]) for key in found)
    embedding = found["model.embedding.word_embeddings.weight"]
    assert embedding.std().item() == pytest.approx(0.02, rel=0.05)
    end = found["model.decoder.layers.mlp.linear_fc2.weight"]
    assert end.std().item() == pytest.approx(0.02 / 2, rel=0.05)
    norm = found["model.decoder.final_layernorm.weight"]
    assert norm.tolist() == [1.0] * 64
    bias = found["model.decoder.layers.self_attention.linear_qkv.bias"]
    assert bias.abs().sum() == 0
