"""One rank of the step benchmark: blocks of our loop and of a plain one in turns."""

from __future__ import annotations

import itertools
import json
import os
import statistics
import sys
from collections.abc import Iterator
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
from launchers.megatron.batches import Batches, MicroBatch
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

BLOCK = 10  # steps
ROUNDS = 8  # where nobody says how many
READ = 50  # global batches that the plain loop has in memory
NEVER = 1_000_000_000  # steps


class Plain:
    """The shortest loop: Megatron's own calls, batches from memory, nothing else.

    They are of the same data as ours.
    """

    def __init__(self, training: Training, batches: Batches) -> None:
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
            lr=training.settings.optimizer.learning_rate,
            clip_grad=training.settings.optimizer.clip_grad,
            bf16=half,
            params_dtype=config.params_dtype,
        )
        self.optimizer = get_megatron_optimizer(
            settings, [self.model], use_gloo_process_groups=False
        )
        config.finalize_model_grads_func = finalize_model_grads
        self.micro, self.length = batches.micro, length
        places = range(0, READ * batches.batch, batches.batch)
        read = [batches.read(batches.ids(place)) for place in places]
        self.count = len(read[0])
        self.batches = itertools.cycle(read)
        self.run = get_forward_backward_func()

    def step(self) -> None:
        """Do one step."""
        self.model.zero_grad_buffer()
        self.optimizer.zero_grad()
        self.run(
            forward_step_func=self.forward,
            data_iterator=iter(next(self.batches)),
            model=self.model,
            num_microbatches=self.count,
            seq_length=self.length,
            micro_batch_size=self.micro,
            forward_only=False,
        )
        self.optimizer.step()

    @staticmethod
    def forward(batches: Iterator[MicroBatch], gpt: Any) -> Any:  # noqa: ANN401
        """Do one micro batch."""
        batch = next(batches)
        output = gpt(batch.tokens, batch.positions, None, labels=batch.labels)
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


def save_adds(steps: list[float]) -> float:
    """Return the seconds by which a save makes its steps longer, of each step's median.

    It is asked for at the end of the last, and goes on in the first.
    """
    first, *others, last = steps
    return first + last - 2 * statistics.median(others)


def measured(loop: Loop, plain: Plain, count: int) -> dict[str, float]:
    """Run ours, ours without saves, and the plain one in turns, to and fro, so often."""
    waits: list[float] = []
    times: list[list[float]] = [[] for _ in range(BLOCK)]
    every = loop.cadence.every

    def ours_step() -> None:
        place = times[loop.step % BLOCK]
        begun = perf_counter()
        waits.append(one_step(loop))
        place.append(perf_counter() - begun)

    def unsaved_step() -> None:
        loop.cadence.every = NEVER
        one_step(loop)
        loop.cadence.every = every

    for _ in range(BLOCK // 2):  # so that a save falls into the middle of a block
        ours_step()
    order = [("ours", ours_step), ("plain", plain.step), ("unsaved", unsaved_step)]
    rounds: list[dict[str, tuple[float, float]]] = []
    for number in range(count + 1):
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
        "save": save_adds([statistics.median(place) for place in times]),
        "data": statistics.median(waits) / ours,
        "memory": memory_gib(),
    }


def main(path: Path, rounds: int = ROUNDS) -> None:
    """Measure, and let rank 0 write what was found."""
    torch.set_flush_denormal(True)  # how long a step takes must not hang on its numbers
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
        found = measured(loop, Plain(training, live.batches), rounds)
        loop.checkpointer.wait()
        if place.rank == 0:
            Path("times.json").write_text(json.dumps(found))


if __name__ == "__main__":
    *rounds, path = sys.argv[1:]
    main(Path(path), *map(int, rounds))
    sys.stdout.flush()
    os._exit(0)  # two models' process groups: nothing to take apart in order
