"""A copy in memory gives every shard its own bytes back, and is proven after."""

from __future__ import annotations

import pytest
import torch

from hpcplat.checkpoints.proof import ResumeMismatchError
from hpcplat.checkpoints.shard import Shard
from launchers.memory import CopyLostError, Found, layout, total
from launchers.recovery.copies import new_memory


def layers(*values: float) -> list[Shard]:
    """Return one tensor for each layer; all are parts of one logical tensor."""
    count = len(values)
    return [
        Shard(
            key="layers.weight",
            tensor=torch.full((2, 3), value),
            global_shape=(count, 2, 3),
            offset=(number, 0, 0),
            shape=(1, 2, 3),
            start=0,
            end=6,
        )
        for number, value in enumerate(values)
    ]


def copied(shards: list[Shard]) -> Found:
    places = layout(shards)
    memory = new_memory(total(places))
    for shard, place in zip(shards, places, strict=True):
        data = shard.flat().view(torch.uint8).numpy().tobytes()
        memory.view[place.start : place.start + place.nbytes] = data
    return Found(7, {}, memory, places)


def test_layers_that_share_a_name_do_not_share_their_values() -> None:
    found = copied(layers(1.0, 2.0))
    live = layers(0.0, 0.0)
    found.load(live)
    assert [shard.tensor.mean().item() for shard in live] == [1.0, 2.0]
    found.prove(live)


def test_a_layer_with_another_layers_values_is_found_by_the_proof() -> None:
    found = copied(layers(1.0, 2.0))
    with pytest.raises(ResumeMismatchError, match=r"layers\.weight at \(0, 0, 0\)"):
        found.prove(layers(2.0, 2.0))


def test_one_flipped_bit_is_found_by_the_proof() -> None:
    found = copied(layers(1.0, 2.0))
    found.memory.view[1] ^= 1
    with pytest.raises(ResumeMismatchError, match="step 7"):
        found.prove(layers(1.0, 2.0))


def test_a_piece_that_was_not_copied_is_refused() -> None:
    found = copied(layers(1.0))
    with pytest.raises(CopyLostError, match=r"layers\.weight is not in the copy"):
        found.load(layers(1.0, 2.0))
