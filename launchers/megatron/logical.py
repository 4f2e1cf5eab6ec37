"""Which part of which logical tensor each parameter of this rank is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from hpcplat.checkpoints.piece import Shape
from hpcplat.checkpoints.shard import Shard
from launchers.megatron.core import (
    ShardedTensor,
    ShardedTensorFactory,
    parallel_state,
)


@dataclass(frozen=True, slots=True)
class Part:
    """Elements ``first`` to ``last`` of a parameter are a block of a logical tensor.

    ``prepended`` leading dimensions (the layer's number) are the logical tensor's only.
    A parameter has two parts where the logical tensor is split within it (SwiGLU).
    """

    key: str
    first: int
    last: int
    global_shape: Shape
    offset: Shape
    shape: Shape
    prepended: int
    replica: int
    replicas: int
    writes: bool


@dataclass(frozen=True, slots=True)
class Parameter:
    """A live parameter (or buffer), and the parts of logical tensors that it holds."""

    tensor: torch.Tensor
    parts: tuple[Part, ...]


def parameters(chunks: Iterable[Any]) -> list[Parameter]:
    """Return every parameter and persistent buffer of the chunks, in a fixed order."""
    found = []
    for chunk in chunks:
        for entry in _leaves(bare(chunk).sharded_state_dict(prefix="model.")):
            tensor = entry.data
            if tensor is not None:
                found.append(Parameter(tensor, tuple(_parts(entry))))
    return found


def bare(module: Any) -> Any:  # noqa: ANN401 - Megatron's wrappers are untyped
    """Return the model inside Megatron's wrappers."""
    while hasattr(module, "module"):
        module = module.module
    return module


def shards(
    prefix: str, parameter: Parameter, tensor: torch.Tensor, start: int | None = None
) -> Iterator[Shard]:
    """Yield the shards of a tensor that goes with a parameter, such as its moments.

    ``tensor`` holds all elements of the parameter, as every replica does; or, with
    ``start``, those from there on that this replica alone owns (the distributed
    optimizer). ``prefix`` goes before the logical key.
    """
    flat, owned = tensor.detach().view(-1), start is not None
    start = start or 0
    end = start + flat.numel()
    for part in parameter.parts:
        first, last = max(part.first, start), min(part.last, end)
        if first < last or not flat.numel():
            yield Shard(
                prefix + part.key,
                flat[first - start : last - start],
                part.global_shape,
                part.offset,
                part.shape,
                first - part.first,
                last - part.first,
                0 if owned else part.replica,
                1 if owned else part.replicas,
                part.writes,
            )


def _leaves(tree: Any) -> Iterator[Any]:  # noqa: ANN401
    if isinstance(tree, ShardedTensor | ShardedTensorFactory):
        yield tree
    elif isinstance(tree, dict):
        for value in tree.values():
            yield from _leaves(value)
    elif isinstance(tree, list | tuple):
        for value in tree:
            yield from _leaves(value)


def _parts(entry: Any) -> Iterator[Part]:  # noqa: ANN401
    base = entry.data.storage_offset()
    blocks = [entry] if isinstance(entry, ShardedTensor) else _leaves(entry.build())
    experts = not getattr(entry.data, "allreduce", True)
    for block in blocks:
        first = block.data.storage_offset() - base
        replica, replicas, writes = _replica(block.replica_id, experts)
        yield Part(
            key=block.key,
            first=first,
            last=first + block.data.numel(),
            global_shape=tuple(block.global_shape),
            offset=tuple(block.global_offset),
            shape=(1,) * block.prepend_axis_num + tuple(block.local_shape),
            prepended=block.prepend_axis_num,
            replica=replica,
            replicas=replicas,
            writes=writes,
        )


def _replica(replica_id: Any, experts: bool) -> tuple[int, int, bool]:  # noqa: ANN401
    """Return (index, count, whether they write) from Megatron's replica id.

    Its last number is the place among data-parallel ranks; where the others are not 0
    the rank holds a copy (of a tensor-parallel neighbour's norm, of the first stage's
    embedding) that others write.
    """
    words = replica_id if isinstance(replica_id, tuple) else (0, 0, replica_id)
    if experts:
        count = parallel_state.get_expert_data_parallel_world_size()
    else:
        count = parallel_state.get_data_parallel_world_size(with_context_parallel=True)
    return int(words[-1]), int(count), not any(words[:-1])
