"""Joins a rank to its world: process groups in the layout's order, seeds, device."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist

from hpcplat.allocation import RankPlacement
from hpcplat.errors import InvalidError
from hpcplat.parallel import Allocation, RankPlace, place_of
from hpcplat.training import Training
from launchers.megatron.core import parallel_state, tensor_parallel

# What torch needs to be told before its first CUDA call, for the same bits every time
# (torch.use_deterministic_algorithms); Megatron's own list: its deterministic_mode.
DETERMINISTIC_ENVIRONMENT = {
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "NCCL_ALGO": "^NVLS",
    "NVTE_ALLOW_NONDETERMINISTIC_ALGO": "0",
}


def device() -> torch.device:
    """Return this rank's device: its GPU, or the CPU where there is none."""
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


@contextmanager
def joined(training: Training, place: RankPlacement) -> Iterator[RankPlace]:
    """Be a member of the world and of all groups of the layout, within the block.

    Yields the rank's coordinates. Raises InvalidError where the world that was started
    is not the one that the layout needs.
    """
    coordinates = _coordinates(training, place)
    timeout = timedelta(seconds=training.settings.collective_timeout)
    dist.init_process_group(
        backend=_backend(place.local_rank),
        rank=place.rank,
        world_size=place.world_size,
        timeout=timeout,
    )
    try:
        _make_groups(training, timeout)
        seed_everything(training.settings.seed, coordinates)
        yield coordinates
    finally:
        parallel_state.destroy_model_parallel()
        dist.destroy_process_group()


def _backend(local_rank: int) -> str:
    """Return what carries collectives; takes this rank's GPU, where there is one."""
    if not torch.cuda.is_available():
        return "gloo"
    if local_rank >= torch.cuda.device_count():
        raise InvalidError(
            f"Rank {local_rank} of its node has no GPU: torch sees"
            f" {torch.cuda.device_count()}.",
            "Ask for a GPU for each rank of a node (gpus_per_node).",
        )
    if not dist.is_nccl_available():
        raise InvalidError(
            f"torch {torch.__version__} sees GPUs and has no NCCL.",
            "Install a build of torch with NCCL.",
        )
    torch.cuda.set_device(local_rank)
    return "nccl"


def _coordinates(training: Training, place: RankPlacement) -> RankPlace:
    nodes, rest = divmod(place.world_size, place.local_world_size)
    allocation = Allocation(nodes=max(nodes, 1), ranks_per_node=place.local_world_size)
    if rest:
        raise InvalidError(
            f"{place.world_size} ranks do not fill nodes of {place.local_world_size}.",
            "Start the same number of ranks on each node.",
        )
    return place_of(training.layout, allocation, place.rank)


def _make_groups(training: Training, timeout: timedelta) -> None:
    layout = training.layout
    chunks = layout.virtual_pipeline
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=layout.tensor,
        pipeline_model_parallel_size=layout.pipeline,
        virtual_pipeline_model_parallel_size=chunks if chunks > 1 else None,
        context_parallel_size=layout.context,
        expert_model_parallel_size=layout.expert,
        expert_tensor_parallel_size=layout.expert_tensor_size,
        order=layout.order,
        # Ours never gathers over gloo: each such group costs a mesh of sockets.
        create_gloo_process_groups=False,
        distributed_timeout_minutes=timeout.total_seconds() / 60,
    )


def seed_everything(seed: int, place: RankPlace) -> None:
    """Seed all generators as Megatron's own training does: by pipeline stage."""
    own = seed + 100 * place.pipeline
    torch.manual_seed(own)
    tensor_parallel.model_parallel_cuda_manual_seed(own, force_reset_rng=True)


def make_deterministic() -> None:
    """Let every operation give the same bits every time, or fail."""
    for name, value in DETERMINISTIC_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
