"""What a process inside an allocation knows of it.

One of the two modules that read the environment: Slurm's and the launcher's own names
become ours here, in two tables (STYLE: one table at the border).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hpcplat.errors import NotFoundError
from hpcplat.runfolder import RunFolder

RUN_FOLDER: Final = "HPCPLAT_RUN_FOLDER"
ATTEMPT: Final = "HPCPLAT_ATTEMPT"
GENERATION: Final = "HPCPLAT_GENERATION"
JOB_KEY: Final = "HPCPLAT_JOB_KEY"
KEEPER: Final = "HPCPLAT_KEEPER"
STAGED: Final = "HPCPLAT_STAGED"  # set by the batch script
PULSE: Final = "HPCPLAT_PULSE"
ARRAY_INDEX: Final = "HPCPLAT_ARRAY_INDEX"
# Slurm's own name of a task's index. A rank sees the index that was asked for, also
# where the array went to Slurm in parts.
SLURM_ARRAY_INDEX: Final = "SLURM_ARRAY_TASK_ID"


@dataclass(frozen=True, slots=True)
class NodePlace:
    """What an agent knows: its job, its node, and the place of both.

    ``node_index`` counts the job's nodes from 0. ``switch`` is its leaf switch where
    Slurm knows the topology (SLURM_TOPOLOGY_ADDR less the node), else empty.
    """

    job_id: int
    node: str
    node_index: int
    node_count: int
    switch: str = ""


@dataclass(frozen=True, slots=True)
class RankPlacement:
    """What a rank knows: itself, the world, where to meet, and its run folder.

    ``generation`` counts starts of the ranks within one attempt, from 0. ``pulse`` is
    where the agent looks for the rank's pulse (hpcplat.pulse), ``keeper`` the name of the
    socket of the node's keeper of copies in memory; None without one. ``staged`` is the
    folder of datasets on the node's own disk, where the job staged one.
    """

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    node_rank: int
    master_address: str
    master_port: int
    run_folder: RunFolder
    attempt: int
    generation: int
    job_key: str
    array_index: int | None = None
    cpus_per_task: int = 1
    pulse: Path | None = None
    keeper: str | None = None
    staged: Path | None = None


def environment() -> dict[str, str]:
    """Return a copy of this process's environment, to hand to a child."""
    return dict(os.environ)


def node_name(environ: Mapping[str, str] = os.environ) -> str:
    """Return Slurm's name of the node; outside of a job, the host's own."""
    return environ.get("SLURMD_NODENAME") or socket.gethostname()


def node_place(environ: Mapping[str, str] = os.environ) -> NodePlace:
    """Return where this agent stands; NotFoundError outside of a Slurm step."""
    try:
        return NodePlace(
            job_id=int(environ["SLURM_JOB_ID"]),
            node=environ["SLURMD_NODENAME"],
            node_index=int(environ.get("SLURM_NODEID", "0")),
            node_count=int(environ.get("SLURM_STEP_NUM_NODES", "1")),
            switch=environ.get("SLURM_TOPOLOGY_ADDR", "").rpartition(".")[0],
        )
    except KeyError as error:
        raise NotFoundError(
            f"{error.args[0]} is not set: this is no step of a Slurm job.",
            "Start it with srun, as the batch script does.",
        ) from error


def rank_placement(environ: Mapping[str, str] = os.environ) -> RankPlacement:
    """Return what this rank knows; NotFoundError outside of an hpcplat job."""
    try:
        index, pulse = environ.get(ARRAY_INDEX), environ.get(PULSE)
        staged = environ.get(STAGED)
        return RankPlacement(
            rank=int(environ["RANK"]),
            world_size=int(environ["WORLD_SIZE"]),
            local_rank=int(environ["LOCAL_RANK"]),
            local_world_size=int(environ["LOCAL_WORLD_SIZE"]),
            node_rank=int(environ["NODE_RANK"]),
            master_address=environ["MASTER_ADDR"],
            master_port=int(environ["MASTER_PORT"]),
            run_folder=RunFolder(Path(environ[RUN_FOLDER])),
            attempt=int(environ[ATTEMPT]),
            generation=int(environ[GENERATION]),
            job_key=environ[JOB_KEY],
            array_index=None if index is None else int(index),
            pulse=None if pulse is None else Path(pulse),
            keeper=environ.get(KEEPER),
            staged=None if staged is None else Path(staged),
        )
    except KeyError as error:
        raise NotFoundError(
            f"{error.args[0]} is not set: this process is no rank of an hpcplat job.",
            "Submit it with hpcplat.",
        ) from error


def placement_outside(
    folder: RunFolder, environ: Mapping[str, str] = os.environ
) -> RankPlacement:
    """Return the placement of a process that hpcplat has not started.

    A process alone, or one of torchrun's, on one node.
    """
    world = environ.get("WORLD_SIZE", "1")
    return RankPlacement(
        rank=int(environ.get("RANK", "0")),
        world_size=int(world),
        local_rank=int(environ.get("LOCAL_RANK", "0")),
        local_world_size=int(environ.get("LOCAL_WORLD_SIZE", world)),
        node_rank=0,
        master_address=environ.get("MASTER_ADDR", "127.0.0.1"),
        master_port=int(environ.get("MASTER_PORT", "0")),
        run_folder=folder,
        attempt=1,
        generation=0,
        job_key="outside",
    )


def rank_variables(place: RankPlacement) -> dict[str, str]:
    """Return the variables that say ``place``: what rank_placement reads.

    The names are torch's and Megatron's (torch.distributed, "Environment variable
    initialization"; GROUP_RANK is torchrun's word for the node), and ours.
    """
    values: dict[str, object] = {
        "RANK": place.rank,
        "WORLD_SIZE": place.world_size,
        "LOCAL_RANK": place.local_rank,
        "LOCAL_WORLD_SIZE": place.local_world_size,
        "NODE_RANK": place.node_rank,
        "GROUP_RANK": place.node_rank,
        "MASTER_ADDR": place.master_address,
        "MASTER_PORT": place.master_port,
        RUN_FOLDER: place.run_folder.root,
        ATTEMPT: place.attempt,
        GENERATION: place.generation,
        JOB_KEY: place.job_key,
    }
    values |= _as_srun_would(place)
    if place.pulse is not None:
        values[PULSE] = place.pulse
    if place.keeper is not None:
        values[KEEPER] = place.keeper
    if place.array_index is not None:
        values |= {ARRAY_INDEX: place.array_index, SLURM_ARRAY_INDEX: place.array_index}
    return {name: str(value) for name, value in values.items()}


def _as_srun_would(place: RankPlacement) -> dict[str, object]:
    """Return the variables that srun would set had it started the ranks itself.

    Many programs find their rank by them (srun(1), OUTPUT ENVIRONMENT VARIABLES).
    """
    return {
        "SLURM_PROCID": place.rank,
        "SLURM_LOCALID": place.local_rank,
        "SLURM_NODEID": place.node_rank,
        "SLURM_NTASKS": place.world_size,
        "SLURM_NPROCS": place.world_size,
        "SLURM_STEP_NUM_TASKS": place.world_size,
        "SLURM_NTASKS_PER_NODE": place.local_world_size,
        "SLURM_CPUS_PER_TASK": place.cpus_per_task,
    }
