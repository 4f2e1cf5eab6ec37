"""The whole state of a rank as shards of logical tensors, and what is no tensor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import torch

from hpcplat.checkpoints.shard import Shard, whole
from hpcplat.parallel import RankPlace
from launchers.megatron import logical
from launchers.megatron import optimizer as adam
from launchers.megatron.core import tensor_parallel
from launchers.megatron.step import Live

RNG = "rng."


def state_shards(live: Live) -> list[Shard]:
    """Return parameters, buffers and optimizer state; the tensors are the live ones.

    They are looked up once: all of them are updated in place for as long as they live.
    """
    if not live.shards:
        live.shards.extend(_state_shards(live))
    return list(live.shards)


def _state_shards(live: Live) -> Iterator[Shard]:
    known = logical.parameters(live.chunks)
    by_tensor = {id(one.tensor): one for one in known}
    for parameter in known:
        yield from logical.shards("", parameter, parameter.tensor)
    for one in adam.owned(live.optimizer):
        parameter = by_tensor[id(one.parameter)]
        tensors = {name: one.state[name] for name in adam.MOMENTS}
        if one.is_copy:
            tensors["main"] = one.main
        for name, tensor in tensors.items():
            prefix = f"optimizer.{name}."
            yield from logical.shards(prefix, parameter, tensor, one.start)


def settle(live: Live) -> None:
    """Let parameters be what the optimizer made them, before they are looked at.

    With gathers that overlap the forward pass they would be so only in the next step.
    """
    if live.training.settings.optimizer.overlap_param_gather:
        for chunk in live.chunks:
            chunk.start_param_sync(force_sync=True)


def rng_shards(place: RankPlace) -> list[Shard]:
    """Return copies of this rank's generator states, by its place in the layout."""
    return [whole(_rng_key(place, name), state) for name, state in _generators()]


class Loads(Protocol):
    """What fills shards: a checkpoint on disk, or a copy in memory."""

    def load(self, shards: Iterable[Shard]) -> None:
        """Fill them by their keys."""
        ...


def load_rng(contents: Loads, place: RankPlace) -> None:
    """Put every generator of this rank where it was."""
    shards = rng_shards(place)
    contents.load(shards)
    found = {shard.key: shard.tensor for shard in shards}
    torch.set_rng_state(found.pop(_rng_key(place, "torch")))
    on_gpu = found.pop(_rng_key(place, "cuda"), None)
    if on_gpu is not None:
        torch.cuda.set_rng_state(on_gpu)
    tracker = tensor_parallel.get_cuda_rng_tracker()
    names = list(tracker.get_states())
    tracker.set_states({name: found[_rng_key(place, name)] for name in names})


def _generators() -> list[tuple[str, torch.Tensor]]:
    found = [("torch", torch.get_rng_state())]
    if torch.cuda.is_available():
        found.append(("cuda", torch.cuda.get_rng_state()))
    tracked = tensor_parallel.get_cuda_rng_tracker().get_states()
    return found + [(name, state.clone()) for name, state in tracked.items()]


def _rng_key(place: RankPlace, name: str) -> str:
    where = (
        f"tp{place.tensor}.cp{place.context}.ep{place.expert}"
        f".dp{place.data}.pp{place.pipeline}"
    )
    return f"{RNG}{where}.{name}"


def extras(live: Live) -> dict[str, Any]:
    """Return the state that is no tensor: update count, and the loss scaler's."""
    return {
        "optimizer_steps": adam.steps_done(live.optimizer),
        "loss_scaler": adam.scaler_state(live.optimizer),
    }


def load_extras(live: Live, saved: Mapping[str, Any]) -> None:
    """Put that state back."""
    adam.set_steps_done(live.optimizer, int(saved["optimizer_steps"]))
    adam.set_scaler_state(live.optimizer, saved["loss_scaler"])
