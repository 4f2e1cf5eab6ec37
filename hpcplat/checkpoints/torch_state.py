"""The state of any PyTorch training as shards: plain modules, DDP, FSDP.

torch.distributed.checkpoint.state_dict gives names that no wrapper changes, and DTensors
where FSDP splits; what is no tensor (rates, schedulers, loss scalers) goes as JSON.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from hpcplat.checkpoints.reading import Contents
from hpcplat.checkpoints.shard import Shard, whole
from hpcplat.checkpoints.together import rank_and_world
from hpcplat.errors import InvalidError

MODEL, OPTIMIZER, RNG = "model.", "optimizer.", "rng."
# Flat names ("state.conv.weight.exp_avg") hold for any split of any optimizer.
OPTIONS = StateDictOptions(flatten_optimizer_state_dict=True)


class Stateful(Protocol):
    """Something with a state of plain values: a scheduler, a loss scaler, a cursor."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any], /) -> Any:  # noqa: ANN401
        """Put a state back."""
        ...


@dataclass(slots=True)
class TorchState:
    """What a script trains: its module, its optimizers, and other things with a state.

    ``others`` by name. The state is taken from them at each save, and put back into
    them at a load.
    """

    model: torch.nn.Module
    optimizers: Sequence[torch.optim.Optimizer] = ()
    others: Mapping[str, Stateful] = field(default_factory=dict)

    def shards(self) -> list[Shard]:
        """Return this rank's tensors (and its generators' states, as copies)."""
        return self._trained() + rng_shards()

    def extras(self) -> dict[str, Any]:
        """Return what is no tensor, as JSON values; InvalidError for what can't be."""
        found = {
            "optimizer": {
                name: value
                for name, value in self._optimizer_state().items()
                if not isinstance(value, torch.Tensor)
            },
            "others": {name: one.state_dict() for name, one in self.others.items()},
        }
        return _plain(found)

    def load(self, contents: Contents, *, same_world: bool) -> None:
        """Fill all from a checkpoint; generators only where the ranks are the same."""
        model = dict(get_model_state_dict(self.model))
        optimizer = self._optimizer_state()
        contents.load(_shards(MODEL, model) + _shards(OPTIMIZER, optimizer))
        set_model_state_dict(self.model, model)
        saved = contents.checkpoint.manifest.extras
        if self.optimizers:
            optimizer |= _record(saved, "optimizer")
            set_optimizer_state_dict(
                self.model, list(self.optimizers), optimizer, options=OPTIONS
            )
        for name, one in self.others.items():
            one.load_state_dict(_record(_record(saved, "others"), name))
        if same_world:
            _load_rng(contents)

    def _trained(self) -> list[Shard]:
        own = {parameter.data_ptr() for parameter in self.model.parameters()}
        found = []
        for shard in _shards(MODEL, get_model_state_dict(self.model)):
            is_buffer = shard.tensor.data_ptr() not in own
            # Running statistics differ between ranks; what DDP goes on with is rank 0's.
            found.append(_of_first_rank(shard) if is_buffer else shard)
        return found + _shards(OPTIMIZER, self._optimizer_state())

    def _optimizer_state(self) -> dict[str, Any]:
        if not self.optimizers:
            return {}
        return dict(
            get_optimizer_state_dict(self.model, list(self.optimizers), options=OPTIONS)
        )


def _record(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = values.get(name)
    if not isinstance(found, dict):
        raise InvalidError(
            f"The checkpoint has no state of {name!r}.",
            "Save with the same things that you load into.",
        )
    return found


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(json.dumps(values))
    except (TypeError, ValueError) as error:
        raise InvalidError(
            f"A state holds what JSON can't: {error}.",
            "Give things whose state_dict() has plain values, or tensors in the model.",
        ) from error
    return found


def _shards(prefix: str, tensors: Mapping[str, Any]) -> list[Shard]:
    return [
        _shard(prefix + name, value)
        for name, value in tensors.items()
        if isinstance(value, torch.Tensor)
    ]


def _of_first_rank(shard: Shard) -> Shard:
    if shard.replicas == 1:
        return shard
    return replace(shard, replica=0, replicas=1, writes=rank_and_world()[0] == 0)


def _shard(key: str, tensor: torch.Tensor) -> Shard:
    rank, world = rank_and_world()
    if not isinstance(tensor, DTensor):
        return whole(key, tensor, rank, world)
    mesh, local = tensor.device_mesh, tensor.to_local()
    shape, offset = compute_local_shape_and_global_offset(
        tensor.shape, mesh, tensor.placements
    )
    replica, replicas = _replica(tensor)
    return Shard(
        key,
        local,
        tuple(tensor.shape),
        tuple(offset),
        tuple(shape),
        0,
        local.numel(),
        replica,
        replicas,
    )


def _replica(tensor: DTensor) -> tuple[int, int]:
    """Return which of how many copies of this part the rank holds."""
    mesh, index, count = tensor.device_mesh, 0, 1
    where: Sequence[int] = mesh.get_coordinate() or ()
    for dimension, place in enumerate(tensor.placements[: len(where)]):
        if place.is_replicate():
            size = mesh.size(dimension)
            index, count = index * size + where[dimension], count * size
    return index, count


def rng_shards() -> list[Shard]:
    """Return copies of this rank's generator states: torch's, the GPU's, Python's."""
    rank, _ = rank_and_world()
    return [whole(f"{RNG}rank{rank}.{name}", state) for name, state in _generators()]


def _generators() -> Iterator[tuple[str, torch.Tensor]]:
    yield "torch", torch.get_rng_state()
    if torch.cuda.is_available():
        yield "cuda", torch.cuda.get_rng_state()
    version, words, gauss = random.getstate()
    yield "python", torch.tensor([version, *words], dtype=torch.int64)
    held = math.nan if gauss is None else gauss
    yield "gauss", torch.tensor(held, dtype=torch.float64)


def _load_rng(contents: Contents) -> None:
    shards = rng_shards()
    contents.load(shards)
    found = {shard.key.rpartition(".")[2]: shard.tensor for shard in shards}
    torch.set_rng_state(found["torch"])
    if "cuda" in found:
        torch.cuda.set_rng_state(found["cuda"])
    version, *words = found["python"].tolist()
    gauss = float(found["gauss"])
    random.setstate((version, tuple(words), None if math.isnan(gauss) else gauss))
