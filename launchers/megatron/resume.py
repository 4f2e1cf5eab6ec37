"""Starts from the newest whole checkpoint, and proves that what came back was lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.distributed as dist

from hpcplat.checkpoints.folder import (
    Checkpoint,
    Rejected,
    open_checkpoint,
    step_folders,
    verify,
)
from hpcplat.checkpoints.manifest import DamagedError, Manifest, TensorEntry
from hpcplat.checkpoints.proof import (
    ResumeMismatchError,
    check_state,
    live_digests,
)
from hpcplat.checkpoints.reading import Contents
from hpcplat.checkpoints.shard import Shard
from hpcplat.errors import ConflictError, HpcplatError, NotFoundError
from launchers.megatron.groups import seed_everything
from launchers.megatron.state import (
    RNG,
    extras,
    load_extras,
    load_rng,
    rng_shards,
    state_shards,
)
from launchers.megatron.step import Live


@dataclass(frozen=True, slots=True)
class Resumed:
    """From where the run goes on: the checkpoint, and whether the layout is the same."""

    manifest: Manifest
    path: Path
    same_layout: bool

    @property
    def step(self) -> int:
        """Steps that were done."""
        return self.manifest.step

    @property
    def samples(self) -> int:
        """Samples that were consumed: where the order goes on."""
        return self.manifest.samples


Tell = Callable[[Rejected], None]


def find(folder: Path, tell: Tell) -> Checkpoint | None:
    """Return the newest checkpoint that all ranks together find whole.

    Each rank hashes its part of the files. ``tell`` hears of every newer one that is
    not whole. None when there is no whole one.
    """
    rank, world = dist.get_rank(), dist.get_world_size()
    paths = [step_folders(folder) if rank == 0 else []]
    dist.broadcast_object_list(paths, src=0)
    for path in paths[0]:
        found, reason = _opened(path, rank, world)
        reasons = [one for one in _from_all(reason) if one]
        if not reasons:
            return found
        tell(Rejected(path, reasons[0]))
    return None


def _opened(path: Path, part: int, parts: int) -> tuple[Checkpoint | None, str]:
    try:
        found = open_checkpoint(path)
        verify(found, part, parts)
    except (DamagedError, NotFoundError) as error:
        return None, error.what
    return found, ""


def resume(live: Live, checkpoint: Checkpoint, dataset_digest: str) -> Resumed:
    """Load a checkpoint into the live state, and prove that it is what was saved.

    Raises ConflictError for another dataset version, OtherModelError for another model,
    ResumeMismatchError if what is live afterwards is not what was saved.
    """
    manifest = checkpoint.manifest
    _check_dataset(manifest, dataset_digest)
    same = _same_layout(live, manifest)
    contents = Contents(checkpoint)
    _together(lambda: _load(live, contents, same))
    if live.training.settings.prove_resume:
        _prove(live, manifest, same)
    return Resumed(manifest, checkpoint.folder.root, same)


def _load(live: Live, contents: Contents, same: bool) -> None:
    contents.load(state_shards(live))
    load_extras(live, contents.checkpoint.manifest.extras)
    if same:
        load_rng(contents, live.place)
    else:  # other ranks, other streams: go on with fresh ones, not with those of step 0
        step = contents.checkpoint.step
        seed_everything(live.training.settings.seed + 1 + step, live.place)


def _same_layout(live: Live, manifest: Manifest) -> bool:
    origin = manifest.origin
    layout = live.training.layout.model_dump(mode="json")
    return origin.layout == layout and origin.world_size == live.world


def _check_dataset(manifest: Manifest, digest: str) -> None:
    saved = manifest.origin.dataset_digest
    if saved and digest and saved != digest:
        raise ConflictError(
            f"The checkpoint was trained on dataset version {saved[:12]}, the job asks "
            f"for {digest[:12]}.",
            "Ask for the same version, or start a new run from exported weights.",
        )


def _prove(live: Live, manifest: Manifest, same: bool) -> None:
    shards: list[Shard] = state_shards(live)
    if same:
        shards += rng_shards(live.place)
    digests = live_digests(dist.get_rank(), shards)
    gathered: list[Any] = [None] * live.world if dist.get_rank() == 0 else []
    dist.gather_object(digests, gathered or None, dst=0)
    _together(lambda: _check(live, manifest, _wanted(manifest, same), gathered))


def _wanted(manifest: Manifest, same: bool) -> dict[str, TensorEntry]:
    return {
        key: entry
        for key, entry in manifest.tensors.items()
        if same or not key.startswith(RNG)
    }


def _check(
    live: Live,
    manifest: Manifest,
    wanted: dict[str, TensorEntry],
    gathered: list[Any],
) -> None:
    now = extras(live)
    for name, saved in manifest.extras.items():
        if name in now and now[name] != saved:
            raise ResumeMismatchError(
                f"{name} is {now[name]} after the load, saved was {saved}."
            )
    if gathered:  # rank 0 alone holds all digests
        check_state([one for own in gathered for one in own], wanted)


def _together(action: Callable[[], None]) -> None:
    """Do something on all ranks; if it fails on one, raise the same error on all."""
    error: HpcplatError | None = None
    try:
        action()
    except HpcplatError as found:
        error = found
    told = next((one for one in _from_all(error) if one is not None), None)
    if told is not None:
        raise told


def _from_all(value: Any) -> list[Any]:  # noqa: ANN401 - whatever can be pickled
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return found
