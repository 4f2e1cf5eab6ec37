"""One rank of the step benchmark: blocks of our loop and of a plain one in turns."""

from __future__ import annotations

import json
import os
import statistics
import sys
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import torch
import torch.distributed as dist

from hpcplat.allocation import rank_placement
from hpcplat.jobs import read_spec
from hpcplat.signals import Asked
from hpcplat.training import Training, training_of
from launchers.megatron import model
from launchers.megatron.config import is_deterministic, transformer_config
from launchers.megatron.core import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    Float16Module,
    GPTModel,
    OptimizerConfig,
    finalize_model_grads,
    get_forward_backward_func,
    get_gpt_decoder_block_spec,
    get_megatron_optimizer,
    parallel_state,
)
from launchers.megatron.groups import device, joined, make_deterministic
from launchers.megatron.loop import Loop
from launchers.megatron.run import (
    _dataset,
    _live,
    _loop,
    _on_these_machines,
    _origin,
)
from launchers.megatron.step import train_step
from launchers.megatron.telemetry import memory_gib
from launchers.memory import MemoryCopies

BLOCK, ROUNDS = 10, 8
NEVER = 1_000_000_000  # steps


class Plain:
    """The shortest loop: Megatron's own calls, random tokens, nothing else."""

    def __init__(self, training: Training) -> None:
        config = transformer_config(training)
        shape, length = training.model, training.sequence_length
        engine, half = model.has_transformer_engine(), config.bf16
        spec = get_gpt_decoder_block_spec(config, use_transformer_engine=engine)
        if not engine:
            model._use_local_norms(spec)
        gpt = GPTModel(
            config,
            spec,
            shape.padded_vocab_size,
            length,
            pre_process=parallel_state.is_pipeline_first_stage(),
            post_process=parallel_state.is_pipeline_last_stage(),
            share_embeddings_and_output_weights=True,
        )
        gpt = Float16Module(config, gpt.to(device())) if half else gpt.to(device())
        reducing = DistributedDataParallelConfig(grad_reduce_in_fp32=half)
        self.model = DistributedDataParallel(config, reducing, gpt)
        settings = OptimizerConfig(
            optimizer="adam",
            lr=1e-3,
            clip_grad=1.0,
            bf16=half,
            params_dtype=config.params_dtype,
        )
        self.optimizer = get_megatron_optimizer(
            settings, [self.model], use_gloo_process_groups=False
        )
        config.finalize_model_grads_func = finalize_model_grads
        batch = training.settings.batch
        replicas = training.layout.data(training.allocation.world)
        self.micro = batch.micro_size
        self.count = batch.global_size // (replicas * self.micro)
        self.length = length
        size = (self.micro, length + 1)
        self.tokens = torch.randint(0, shape.vocab_size, size, device=device())
        self.positions = torch.arange(length, device=device()).expand(
            self.micro, length
        )
        self.run = get_forward_backward_func()

    def step(self) -> None:
        """Do one step."""
        self.model.zero_grad_buffer()
        self.optimizer.zero_grad()
        self.run(
            forward_step_func=self.forward,
            data_iterator=None,
            model=self.model,
            num_microbatches=self.count,
            seq_length=self.length,
            micro_batch_size=self.micro,
            forward_only=False,
        )
        self.optimizer.step()

    def forward(self, _data: object, gpt: Any) -> Any:  # noqa: ANN401
        """Do one micro batch."""
        inputs, labels = self.tokens[:, :-1], self.tokens[:, 1:].contiguous()
        output = gpt(inputs.contiguous(), self.positions, None, labels=labels)
        return output, lambda out: (out.float().mean(), out.detach().mean())


def one_step(loop: Loop) -> float:
    """Do one step of our loop, all that belongs to it; return the wait for data."""
    result = train_step(loop.live, loop.step, loop.samples, loop._signals)
    loop._after(result)
    return result.data_seconds


def block(loop: Loop, action: Any) -> tuple[float, float]:  # noqa: ANN401
    """Return the wall and CPU seconds of a step, over a block that all ranks end.

    A save that began in it ends in it.
    """
    dist.barrier()
    begun, used = perf_counter(), process_time()
    for _ in range(BLOCK):
        action()
    loop.checkpointer.wait()
    used = process_time() - used  # all threads: a save's too
    dist.barrier()
    return (perf_counter() - begun) / BLOCK, used / BLOCK


def measured(loop: Loop, plain: Plain) -> dict[str, float]:
    """Run ours, ours without saves, and the plain one in turns, to and fro."""
    waits: list[float] = []
    every = loop.cadence.every

    def ours_step() -> None:
        waits.append(one_step(loop))

    def unsaved_step() -> None:
        loop.cadence.every = NEVER
        one_step(loop)
        loop.cadence.every = every

    for _ in range(BLOCK // 2):  # so that a save falls into the middle of a block
        ours_step()
    order = [("ours", ours_step), ("plain", plain.step), ("unsaved", unsaved_step)]
    rounds: list[dict[str, tuple[float, float]]] = []
    for number in range(ROUNDS + 1):
        turns = order if number % 2 else order[::-1]
        rounds.append({name: block(loop, action) for name, action in turns})
    del rounds[0]  # it warms all up
    ratios = [each["ours"][0] / each["plain"][0] for each in rounds]
    low, _, high = statistics.quantiles(ratios, n=4)
    ours = statistics.median(each["ours"][0] for each in rounds)
    return {
        "ours": ours,
        "plain": statistics.median(each["plain"][0] for each in rounds),
        "ratio": statistics.median(ratios),
        "low": low,
        "high": high,
        "cpu": statistics.median(each["ours"][1] / each["plain"][1] for each in rounds),
        "unsaved": statistics.median(
            each["unsaved"][0] / each["plain"][0] for each in rounds
        ),
        "data": statistics.median(waits) / ours,
        "memory": memory_gib(),
    }


def main(path: Path) -> None:
    """Measure, and let rank 0 write what was found."""
    place = rank_placement()
    spec = read_spec(path)
    training = _on_these_machines(training_of(spec), place)
    if is_deterministic(training):
        make_deterministic()
    version = _dataset(training, place)
    with joined(training, place) as coordinates:
        live = _live(training, coordinates, version)
        copies = MemoryCopies(place.keeper, place.rank, 0)
        origin = _origin(spec, training, place, version)
        loop = _loop(live, place, Asked(), origin, copies)
        loop.begin()
        found = measured(loop, Plain(training))
        loop.checkpointer.wait()
        if place.rank == 0:
            Path("times.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    sys.stdout.flush()
    os._exit(0)  # two models' process groups: nothing to take apart in order
