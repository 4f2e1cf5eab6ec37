"""Trains with one bug of resuming seeded: ``seeded_bug.py NAME SPEC``. A test's tool.

Each bug strikes after a resume only, as a wrong resume would, and on one rank where one
is enough. None of them raises an error of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from hpcplat.checkpoints.reading import Contents
from launchers.megatron import loop, optimizer, resume, state, step
from launchers.megatron.__main__ import main
from launchers.megatron.groups import seed_everything

Action = Callable[[Any], None]


def after_loading(action: Action) -> None:
    """Do something to the live state right after it was loaded."""
    real = resume._load

    def load(live: Any, contents: Contents, same: bool) -> None:  # noqa: ANN401
        real(live, contents, same)
        with torch.no_grad():
            action(live)

    resume._load = load


def after_the_proof(action: Action) -> None:
    """Do something right before the first step: no digest can see it."""
    real = loop.Loop._take_up

    def take_up(self: loop.Loop, found: resume.Resumed) -> None:
        real(self, found)
        with torch.no_grad():
            action(self)

    loop.Loop._take_up = take_up  # type: ignore[method-assign]


def replace(module: Any, name: str, function: Callable[..., Any]) -> None:  # noqa: ANN401
    """Put a function in place of one, which it gets as its first argument."""
    real = getattr(module, name)
    setattr(module, name, lambda *args: function(real, *args))


def on_last_rank(action: Action) -> Action:
    return lambda live: action(live) if dist.get_rank() == live.world - 1 else None


def first_parameter(live: Any) -> torch.Tensor:  # noqa: ANN401
    found: torch.Tensor = next(iter(live.chunks[0].parameters())).data
    return found


def first_state(live: Any) -> dict[str, torch.Tensor]:  # noqa: ANN401
    return next(optimizer.owned(live.optimizer)).state


def swap_shards(live: Any) -> None:  # noqa: ANN401
    """Exchange a weight of equal shape between ranks 0 and 1."""
    shards = state.state_shards(live)
    weight = next(s.tensor for s in shards if s.key.endswith("linear_proj.weight"))
    if dist.get_rank() < 2:
        other, mine = torch.empty_like(weight), weight.clone()
        requests = [
            dist.isend(mine, 1 - dist.get_rank()),
            dist.irecv(other, 1 - dist.get_rank()),
        ]
        for request in requests:
            assert request is not None
            request.wait()
        weight.copy_(other)


def wrong_rng(live: Any) -> None:  # noqa: ANN401
    seed_everything(4711, live.place)


def stale_tensor(live: Any) -> None:  # noqa: ANN401
    first_parameter(live).mul_(1.0000001)


def lost_moments(live: Any) -> None:  # noqa: ANN401
    for one in optimizer.owned(live.optimizer):
        for name in optimizer.MOMENTS:
            one.state[name].zero_()


def one_lost_moment(live: Any) -> None:  # noqa: ANN401
    first_state(live)["exp_avg_sq"].zero_()


def lost_update_count(live: Any) -> None:  # noqa: ANN401
    optimizer.set_steps_done(live.optimizer, 0)


def lost_scaler(live: Any) -> None:  # noqa: ANN401
    fresh = {"scale": 65536.0, "growth_tracker": 0.0, "hysteresis_tracker": 2.0}
    optimizer.set_scaler_state(live.optimizer, fresh)


def main_weights_from_half(live: Any) -> None:  # noqa: ANN401
    """Take the fp32 copies from the rounded weights."""
    for one in optimizer.owned(live.optimizer):
        one.main.copy_(one.parameter)


def shifted_data(found: loop.Loop) -> None:
    found.samples += 1


def data_from_the_start(found: loop.Loop) -> None:
    found.samples = 0


def reset_learning_rate(_found: loop.Loop) -> None:
    replace(step, "learning_rate", lambda real, s, number: real(s, number - 4))


def lost_weight_decay(_found: loop.Loop) -> None:
    replace(optimizer, "set_learning_rate", lambda real, o, rate, _: real(o, rate, 0.0))


def dropped_gradient(found: loop.Loop) -> None:
    """Forget the gradient of one parameter, in the first step only."""
    live, once = found.live, [True] if dist.get_rank() == 0 else []

    def update(real: Any, *given: Any) -> Any:  # noqa: ANN401
        if once:
            once.clear()
            next(iter(live.chunks[0].parameters())).main_grad.zero_()
        return real(*given)

    replace(step, "_update", update)


def dropped_micro_batch(found: loop.Loop) -> None:
    """Read one micro batch twice and another not at all."""
    batches = found.live.batches
    real = type(batches).read

    def read(self: Any, ids: Any) -> Any:  # noqa: ANN401
        micro = real(self, ids)
        return [micro[0], *micro[:-1]] if dist.get_rank() == 0 else micro

    type(batches).read = read  # type: ignore[method-assign]


LOADED: dict[str, Action] = {
    "wrong rng on one rank": on_last_rank(wrong_rng),
    "stale tensor on one rank": on_last_rank(stale_tensor),
    "lost optimizer state": lost_moments,
    "one lost moment on one rank": on_last_rank(one_lost_moment),
    "lost update count": lost_update_count,
    "lost scaler": lost_scaler,
    "swapped shards": swap_shards,
    "main weights from half": main_weights_from_half,
}
PROVEN: dict[str, Action] = {
    "shifted data": shifted_data,
    "data from the start": data_from_the_start,
    "reset learning rate": reset_learning_rate,
    "dropped gradient": dropped_gradient,
    "dropped micro batch": dropped_micro_batch,
    "lost weight decay": lost_weight_decay,
}

if __name__ == "__main__":
    name = sys.argv[1]
    if name in LOADED:
        after_loading(LOADED[name])
    else:
        after_the_proof(PROVEN[name])
    sys.exit(main(sys.argv[2:]))
