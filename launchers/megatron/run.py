"""One rank of a training run, from its spec to its exit code."""

from __future__ import annotations

import gc
import hashlib
import json
import secrets
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist

from hpcplat import datasets
from hpcplat.allocation import RankPlacement
from hpcplat.checkpoints.checkpointer import Checkpointer
from hpcplat.checkpoints.folder import Retention, step_folders
from hpcplat.checkpoints.manifest import Origin
from hpcplat.checkpoints.together import from_first
from hpcplat.errors import InvalidError
from hpcplat.jobs import JobSpec
from hpcplat.journal import Conditions, Journal
from hpcplat.parallel import Allocation, RankPlace
from hpcplat.parallel_rules import check
from hpcplat.pulse import Pulse
from hpcplat.signals import Asked
from hpcplat.training import Training, training_of
from launchers.megatron import model, optimizer
from launchers.megatron.batches import Batches, Share, check_data
from launchers.megatron.cadence import Cadence
from launchers.megatron.config import is_deterministic
from launchers.megatron.groups import device, joined, make_deterministic
from launchers.megatron.history import history_of
from launchers.megatron.loop import Loop
from launchers.megatron.space import Space
from launchers.megatron.state import rng_shards, state_shards
from launchers.megatron.step import Live, connect
from launchers.megatron.telemetry import Telemetry
from launchers.memory import MemoryCopies
from launchers.waiting import count_waits

# Stated tolerances for steps run again on another layout (docs/explanation).
LOSS_TOLERANCE = {"fp32": 1e-5, "bf16": 2e-3, "fp16": 2e-3}
NORM_TOLERANCE = {"fp32": 1e-3, "bf16": 5e-2, "fp16": 5e-2}
DROPOUTS = ("hidden_dropout", "attention_dropout")


def train(spec: JobSpec, place: RankPlacement) -> int:
    """Train what the spec asks for; returns the exit code of this rank.

    Raises HpcplatError for what cannot be trained, or must not go on.
    """
    asked = Asked()
    asked.listen()
    training = _on_these_machines(training_of(spec), place)
    if is_deterministic(training):
        make_deterministic()
    version = _dataset(training, place)
    with joined(training, place) as coordinates:
        live = _live(training, coordinates, version)
        copies = MemoryCopies(
            place.keeper,
            place.rank,
            spec.recovery.memory_copies_every,
            place.generation,
        )
        origin = _origin(spec, training, place, version)
        loop = _loop(live, place, asked, origin, copies)
        try:
            loop.begin()
            gc.collect()
            gc.freeze()  # what lives to the end need not be looked at again and again
            return loop.run()
        finally:
            loop.telemetry.close()
            copies.close()


def _on_these_machines(training: Training, place: RankPlacement) -> Training:
    """Return the training on the ranks that there are (fewer after a shrink)."""
    allocation = Allocation(
        nodes=max(place.world_size // place.local_world_size, 1),
        ranks_per_node=place.local_world_size,
    )
    check(training.plan(allocation))
    return replace(training, allocation=allocation)


def _dataset(training: Training, place: RankPlacement) -> datasets.DatasetVersion:
    """Open the dataset, on the node's own disk where the job staged it."""
    if training.dataset is None:
        raise InvalidError("The spec names no dataset.", "Give data: name@version.")
    root = training.settings.data.root
    version = datasets.open(training.dataset, root, staged=place.staged)
    if place.staged is not None and place.local_rank == 0:
        print(f"The dataset is read from {version.folder}.", flush=True)
    return version


def _live(
    training: Training, place: RankPlace, version: datasets.DatasetVersion
) -> Live:
    data = training.settings.data
    share = Share(place.data, training.layout.data(training.allocation.world))
    batches = _batches(training, version, data.train_split, share)
    check_data(training, batches.windows)
    chunks = model.build(training)
    live = Live(
        training=training,
        place=place,
        chunks=chunks,
        optimizer=optimizer.build(training, chunks),
        batches=batches,
        device=device(),
    )
    if training.settings.evaluation.every:
        split = data.validation_split
        live.validation = _batches(training, version, split, share)
        check_data(training, live.validation.windows)
    connect(live)
    return live


def _batches(
    training: Training, version: datasets.DatasetVersion, split: str, share: Share
) -> Batches:
    settings = training.settings
    windows = datasets.TokenWindows(version.split(split), training.sequence_length)
    order = datasets.Cursor(
        max(len(windows), 1), settings.data.seed, dataset=version.digest
    )
    batch = settings.batch
    return Batches(windows, order, share, batch.global_size, batch.micro_size, device())


def _loop(
    live: Live,
    place: RankPlacement,
    asked: Asked,
    origin: Origin,
    copies: MemoryCopies,
) -> Loop:
    training = live.training
    wanted = training.checkpoint
    folder = Path(wanted.folder or place.run_folder.checkpoints)
    checkpointer = Checkpointer(
        folder,
        from_first(secrets.token_hex(4)),
        place.rank,
        place.world_size,
        Retention(wanted.keep_last, wanted.keep_every, wanted.best),
    )
    space = _space(live, checkpointer)
    journal = None
    if place.rank == 0 and training.settings.prove_resume:
        journal = Journal(place.run_folder.journal, _conditions(training, place))
    return Loop(
        live=live,
        checkpointer=checkpointer,
        cadence=Cadence(wanted.every, place.world_size, history_of(place)),
        telemetry=Telemetry(training, place),
        asked=asked,
        origin=origin,
        pulse=Pulse(place.pulse, place.local_rank),
        copies=copies,
        waiting=count_waits(),
        space=space,
        journal=journal,
    )


def _space(live: Live, checkpointer: Checkpointer) -> Space:
    """Get the memory for saves; the space that one takes.

    Refuses to start where not a single one would fit; a run that has saved before waits
    for room instead (Loop).
    """
    own = checkpointer.reserve(state_shards(live) + rng_shards(live.place))
    total = torch.tensor([float(own)], dtype=torch.float64, device=live.device)
    dist.all_reduce(total)
    space = Space(checkpointer.folder, int(total.item()))
    problem = space.known_problem()
    if problem and not from_first(has_begun(space.folder)):
        raise InvalidError(problem, "Make room, or set checkpoint.folder.")
    return space


def has_begun(folder: Path) -> bool:
    """Return whether something was saved there, whole or not."""
    return bool(step_folders(folder))


def _conditions(training: Training, place: RankPlacement) -> Conditions:
    precision = training.settings.precision.format
    return Conditions(
        layout=json.dumps(training.layout.model_dump(mode="json"), sort_keys=True),
        world=place.world_size,
        exact=is_deterministic(training),
        precision=precision,
        loss_tolerance=LOSS_TOLERANCE[precision],
        norm_tolerance=NORM_TOLERANCE[precision],
        draws=any(training.transformer.get(name) for name in DROPOUTS),
    )


def _origin(
    spec: JobSpec,
    training: Training,
    place: RankPlacement,
    version: datasets.DatasetVersion,
) -> Origin:
    return Origin(
        world_size=place.world_size,
        layout=training.layout.model_dump(mode="json"),
        dataset=training.dataset,
        dataset_digest=version.digest,
        spec=hashlib.sha256(spec.model_dump_json().encode()).hexdigest(),
        job=place.job_key,
        attempt=place.attempt,
    )
