"""Starts from the newest whole checkpoint, and proves that what came back was lost."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hpcplat.checkpoints.folder import PREFIX, Checkpoint, step_folders
from hpcplat.checkpoints.manifest import Manifest
from hpcplat.checkpoints.proof import ResumeMismatchError
from hpcplat.checkpoints.reading import Contents
from hpcplat.checkpoints.together import from_all, prove_state, together
from hpcplat.errors import ConflictError
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
from launchers.memory import CopyLostError, Found, MemoryCopies
from launchers.recovery.copies import EMPTY


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


def resume(live: Live, checkpoint: Checkpoint, dataset_digest: str) -> Resumed:
    """Load a checkpoint into the live state, and prove that it is what was saved.

    Raises ConflictError for another dataset version, OtherModelError for another model,
    ResumeMismatchError if what is live afterwards is not what was saved.
    """
    manifest = checkpoint.manifest
    _check_dataset(manifest, dataset_digest)
    same = _same_layout(live, manifest)
    contents = Contents(checkpoint)
    together(lambda: _load(live, contents, same))
    if live.training.settings.prove_resume:
        _prove(live, manifest, same)
    return Resumed(manifest, checkpoint.folder.root, same)


def resume_from_memory(live: Live, copies: MemoryCopies, folder: Path) -> Found | None:
    """Go on from the copies in memory, on all ranks; None if a checkpoint is to be used.

    That is where one rank's copy is not as it should be, or the disk has a later step.
    """
    found: Found | None = None
    if copies.resume != EMPTY:
        try:
            found = copies.find()
        except CopyLostError as error:
            print(error, flush=True)
    told = from_all((EMPTY if found is None else found.step, newest_step(folder)))
    steps = {step for step, _ in told}
    if found is None or len(steps) > 1 or found.step < told[0][1]:
        return None
    found.load(state_shards(live))
    load_extras(live, found.meta["extras"])
    load_rng(found, live.place)
    if live.training.settings.prove_resume:
        copied = found
        together(lambda: copied.prove(state_shards(live) + rng_shards(live.place)))
    return found


def newest_step(folder: Path) -> int:
    """Return the step of the newest folder that is named like a checkpoint; -1: none."""
    paths = step_folders(folder)
    return int(paths[0].name.removeprefix(PREFIX)) if paths else EMPTY


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
    shards = state_shards(live) + (rng_shards(live.place) if same else [])
    saved = {
        key: entry
        for key, entry in manifest.tensors.items()
        if same or not key.startswith(RNG)
    }
    together(lambda: _check_extras(live, manifest))
    prove_state(shards, saved)


def _check_extras(live: Live, manifest: Manifest) -> None:
    now = extras(live)
    for name, saved in manifest.extras.items():
        if name in now and now[name] != saved:
            raise ResumeMismatchError(
                f"{name} is {now[name]} after the load, saved was {saved}."
            )
