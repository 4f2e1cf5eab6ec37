"""Checkpoints: any split in, any split out; whole or not taken; proof of what came."""

from __future__ import annotations

import itertools
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcplat.checkpoints.checkpointer import Checkpointer, Outcome
from hpcplat.checkpoints.folder import (
    Retention,
    discard,
    listing,
    name_of,
    newest_whole,
    open_checkpoint,
    step_folders,
    superfluous,
    verify,
)
from hpcplat.checkpoints.manifest import DamagedError, Origin
from hpcplat.checkpoints.proof import ResumeMismatchError, check_state, live_digests
from hpcplat.checkpoints.reading import Contents, OtherModelError
from hpcplat.checkpoints.shard import Shard, whole
from hpcplat.checkpoints.writing import Facts
from hpcplat.errors import NotFoundError

DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.float16]


def cuts(length: int, count: int, random: Random) -> list[int]:
    inner = sorted(random.randint(0, length) for _ in range(count - 1))
    return [0, *inner, length]


def split(
    key: str, tensor: torch.Tensor, random: Random, ranks: int
) -> list[list[Shard]]:
    """Give ``ranks`` ranks the tensor: boxes, each whole, in flat parts or replicated."""
    shape, found = tuple(tensor.shape), [list[Shard]() for _ in range(ranks)]
    rows = cuts(shape[0], random.randint(1, 3), random)
    columns = cuts(shape[1], random.randint(1, 3), random)
    for top, bottom in itertools.pairwise(rows):
        for left, right in itertools.pairwise(columns):
            box = tensor[top:bottom, left:right]
            if not box.numel():
                continue
            base = whole(key, box.clone())
            place = replace(base, global_shape=shape, offset=(top, left))
            holders = random.sample(range(ranks), random.randint(1, ranks))
            for shard, rank in zip(
                parts(place, len(holders), random), holders, strict=True
            ):
                found[rank].append(shard)
    return found


def parts(place: Shard, count: int, random: Random) -> Iterator[Shard]:
    if random.random() < 0.5:
        for replica in range(count):
            copy = place.tensor.clone()
            yield replace(place, tensor=copy, replica=replica, replicas=count)
        return
    flat = place.tensor.reshape(-1)
    bounds = cuts(flat.numel(), count, random)
    for start, end in itertools.pairwise(bounds):
        yield replace(place, tensor=flat[start:end].clone(), start=start, end=end)


def random_state(seed: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(seed)
    random = Random(seed)
    return {
        f"t{number}": (
            torch.randn(random.randint(1, 9), random.randint(1, 9)) * 100
        ).to(dtype)
        for number, dtype in enumerate(DTYPES)
    }


def shards_of(
    state: dict[str, torch.Tensor], seed: int, ranks: int
) -> list[list[Shard]]:
    random = Random(seed)
    found: list[list[Shard]] = [[] for _ in range(ranks)]
    for key, tensor in state.items():
        for rank, own in enumerate(split(key, tensor, random, ranks)):
            found[rank] += own
    return found


def save(
    folder: Path,
    shards: list[list[Shard]],
    step: int = 1,
    retention: Retention | None = None,
) -> Outcome:
    """Save with one checkpointer a rank, and return how it went for rank 0."""
    savers = [
        Checkpointer(folder, "here", rank, len(shards), retention, patience=5)
        for rank in range(len(shards))
    ]
    facts = Facts(step, 8 * step, Origin(world_size=len(shards)), {"lr": 0.1})
    for saver, own in zip(savers, shards, strict=True):
        saver.save(facts, own)
    for saver in savers:
        assert saver.wait(20)
    return savers[0].outcomes()[0]


@pytest.mark.slow
@settings(max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 4))
def test_any_split_that_was_saved_loads_into_any_other(
    tmp_path_factory: pytest.TempPathFactory, seed: int, before: int, after: int
) -> None:
    folder = tmp_path_factory.mktemp("checkpoints")
    state = random_state(seed)
    outcome = save(folder, shards_of(state, seed, before))
    assert outcome.path == folder / name_of(1), outcome.reason
    found, rejected = newest_whole(folder)
    assert found is not None
    assert rejected == []
    empty = {key: torch.zeros_like(tensor) for key, tensor in state.items()}
    targets = shards_of(empty, seed + 1, after)
    contents = Contents(found)
    for own in targets:
        contents.load(own)
    for own, expected in zip(targets, shards_of(state, seed + 1, after), strict=True):
        for shard, other in zip(own, expected, strict=True):
            assert torch.equal(shard.tensor, other.tensor)
    digests = [
        one for rank, own in enumerate(targets) for one in live_digests(rank, own)
    ]
    check_state(digests, found.manifest.tensors)
    for key, tensor in state.items():
        assert torch.equal(contents.tensor(key), tensor)


def test_tensors_without_dimensions_and_empty_ones(tmp_path: Path) -> None:
    state = {"step": torch.tensor(7.0), "none": torch.empty(0, 4)}
    assert save(tmp_path, [[whole(k, t) for k, t in state.items()]]).path
    found, _ = newest_whole(tmp_path)
    assert found is not None
    target = torch.tensor(0.0)
    Contents(found).load([whole("step", target)])
    assert target.item() == 7.0


def one_element_wrong(state: list[list[Shard]]) -> None:
    state[0][0].tensor.view(torch.int32).reshape(-1)[0] ^= 1


def two_elements_swapped(state: list[list[Shard]]) -> None:
    flat = state[0][0].tensor.reshape(-1)
    flat[0], flat[1] = flat[1].clone(), flat[0].clone()


def two_shards_swapped(state: list[list[Shard]]) -> None:
    one, other = state[0][0].tensor, state[1][0].tensor
    kept = one.clone()
    one.copy_(other)
    other.copy_(kept)


def one_replica_stale(state: list[list[Shard]]) -> None:
    state[1][1].tensor.zero_()


def one_tensor_missing(state: list[list[Shard]]) -> None:
    for own in state:
        del own[1]


FAULTS: dict[Callable[[list[list[Shard]]], None], str] = {
    one_element_wrong: "w is not as it was saved",
    two_elements_swapped: "w is not as it was saved",
    two_shards_swapped: "w is not as it was saved",
    one_replica_stale: "n differs between ranks 0 and 1",
    one_tensor_missing: "n was saved and no rank loaded it",
}


def two_ranks() -> list[list[Shard]]:
    weight, norm = torch.randn(4, 6), torch.randn(6)
    shard = whole("w", weight[:2].clone())
    top = replace(shard, global_shape=(4, 6))
    bottom = replace(top, offset=(2, 0), tensor=weight[2:].clone())
    norms = [whole("n", norm.clone(), rank, 2) for rank in range(2)]
    return [[top, norms[0]], [bottom, norms[1]]]


@pytest.mark.parametrize("fault", FAULTS)
def test_state_that_is_not_what_was_saved_is_told(
    tmp_path: Path, fault: Callable[[list[list[Shard]]], None]
) -> None:
    state = two_ranks()
    save(tmp_path, state)
    saved = open_checkpoint(tmp_path / name_of(1)).manifest.tensors
    check_state([d for r, own in enumerate(state) for d in live_digests(r, own)], saved)
    fault(state)
    with pytest.raises(ResumeMismatchError, match=FAULTS[fault]):
        check_state(
            [d for r, own in enumerate(state) for d in live_digests(r, own)], saved
        )


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(content)


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "bytes flipped": (lambda folder: flip(folder / "rank-00000.bin"), "was changed"),
    "cut short": (
        lambda folder: (folder / "rank-00000.bin").write_bytes(b"x"),
        "has 1 bytes, not",
    ),
    "file missing": (lambda folder: (folder / "rank-00000.bin").unlink(), "is missing"),
    "index changed": (lambda folder: flip(folder / "rank-00000.json"), "was changed"),
    "manifest changed": (lambda folder: flip(folder / "manifest.json"), "manifest"),
    "manifest gone": (
        lambda folder: (folder / "manifest.json").unlink(),
        "no manifest",
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_is_passed_over_with_the_reason(
    tmp_path: Path, damage: str
) -> None:
    state = [[whole("w", torch.randn(300))]]
    for step in (1, 2):
        save(tmp_path, state, step)
    harm, words = DAMAGE[damage]
    harm(tmp_path / name_of(2))
    found, rejected = newest_whole(tmp_path)
    assert found is not None
    assert found.step == 1
    assert [one.folder.name for one in rejected] == [name_of(2)]
    assert words in rejected[0].reason


def test_ranks_share_the_work_of_verifying(tmp_path: Path) -> None:
    save(tmp_path, two_ranks())
    checkpoint = open_checkpoint(tmp_path / name_of(1))
    flip(tmp_path / name_of(1) / "rank-00001.bin")
    failed = 0
    for part in range(3):
        try:
            verify(checkpoint, part, 3)
        except DamagedError:
            failed += 1
    assert failed == 1


def test_another_model_is_refused_with_the_shapes(tmp_path: Path) -> None:
    save(tmp_path, [[whole("w", torch.randn(3, 4))]])
    contents = Contents(open_checkpoint(tmp_path / name_of(1)))
    wanted = [whole("w", torch.zeros(3, 5)), whole("v", torch.zeros(1))]
    with pytest.raises(OtherModelError) as refused:
        contents.load(wanted)
    assert r"w is [3, 4] there and [3, 5] here" in str(refused.value)
    assert "v is not in it" in str(refused.value)


def test_what_is_no_checkpoint_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no manifest"):
        open_checkpoint(tmp_path / name_of(1))
    assert newest_whole(tmp_path / "nowhere") == (None, [])


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let writes beyond ``size`` bytes fail, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_fails_the_save_and_keeps_the_older_one(tmp_path: Path) -> None:
    state = [[whole("w", torch.randn(100_000))]]
    save(tmp_path, state, 1)
    with largest_file(100_000):
        outcome = save(tmp_path, state, 2)
    assert outcome.path is None
    assert "could not write its part: File too large" in outcome.reason
    found, rejected = newest_whole(tmp_path)
    assert (found and found.step, rejected) == (1, [])
    assert [path.name for path in tmp_path.iterdir()] == [name_of(1)]


def test_a_rank_that_never_comes_fails_the_save(tmp_path: Path) -> None:
    saver = Checkpointer(tmp_path, "here", 0, 2, patience=30)
    saver.save(Facts(1, 1, Origin(world_size=2)), [whole("w", torch.randn(5))])
    saver.abandon()
    assert saver.wait(10)
    assert "no part came from rank 1" in saver.outcomes()[0].reason
    assert list(tmp_path.iterdir()) == []


def test_the_step_may_change_its_tensors_once_the_copy_is_taken(tmp_path: Path) -> None:
    tensor = torch.ones(200_000)
    saver = Checkpointer(tmp_path, "here")
    saver.save(Facts(1, 1, Origin(world_size=1)), [whole("w", tensor)])
    tensor.zero_()
    saver.wait()
    found, _ = newest_whole(tmp_path)
    assert found is not None
    assert bool((Contents(found).tensor("w") == 1).all())


def test_a_disk_that_hangs_holds_no_step_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = threading.Event()
    fsync = os.fsync

    def slow(file: int) -> None:
        assert hangs.wait(20)
        fsync(file)

    monkeypatch.setattr(os, "fsync", slow)
    saver = Checkpointer(tmp_path, "here")
    saver.save(Facts(1, 1, Origin(world_size=1)), [whole("w", torch.ones(5))])
    assert not saver.wait(0.05)  # who waits can do so for a while only
    assert saver.busy
    assert newest_whole(tmp_path) == (None, [])
    hangs.set()
    assert saver.wait(20)
    assert saver.outcomes()[0].path == tmp_path / name_of(1)


def test_a_step_run_again_replaces_its_checkpoint(tmp_path: Path) -> None:
    for value in (1.0, 2.0):
        save(tmp_path, [[whole("w", torch.full((3,), value))]])
    assert [path.name for path in tmp_path.iterdir()] == [name_of(1)]
    found, _ = newest_whole(tmp_path)
    assert found is not None
    assert Contents(found).tensor("w").tolist() == [2.0] * 3


def test_what_stays(tmp_path: Path) -> None:
    state = [[whole("w", torch.randn(3))]]
    for step in range(1, 9):
        save(tmp_path, state, step, Retention(keep_last=2, keep_every=4))
    assert [one.step for one in listing(tmp_path)[0]] == [8, 7, 4]


def test_the_best_by_a_metric_stays(tmp_path: Path) -> None:
    losses = {1: 3.0, 2: 1.0, 3: 2.0, 4: 2.5}
    for step, loss in losses.items():
        saver = Checkpointer(tmp_path, "here", retention=Retention(9))
        facts = Facts(step, 1, Origin(world_size=1), {}, {"loss": loss})
        saver.save(facts, [whole("w", torch.randn(3))])
        saver.wait()
    found, _ = listing(tmp_path)
    gone = superfluous(found, Retention(keep_last=1, best="loss"))
    assert [one.step for one in gone] == [1, 3]
    gone = superfluous(found, Retention(keep_last=1, best="-loss"))
    assert [one.step for one in gone] == [2, 3]


def test_a_discarded_checkpoint_is_gone(tmp_path: Path) -> None:
    save(tmp_path, [[whole("w", torch.randn(3))]])
    discard(tmp_path / name_of(1))
    assert list(tmp_path.iterdir()) == []


SAVING_WITHOUT_END = """
import sys, torch
from pathlib import Path
from hpcplat.checkpoints.checkpointer import Checkpointer
from hpcplat.checkpoints.manifest import Origin
from hpcplat.checkpoints.shard import whole
from hpcplat.checkpoints.writing import Facts
folder, first = Path(sys.argv[1]), int(sys.argv[2])
saver = Checkpointer(folder, f"run{first}")
for step in range(first, first + 10_000):
    content = torch.full((50_000,), float(step))
    saver.save(Facts(step, step, Origin(world_size=1)), [whole("w", content)])
    print(step, flush=True)
"""


@pytest.mark.slow
def test_kill_9_leaves_nothing_that_could_be_taken_for_whole(tmp_path: Path) -> None:
    random, first = Random(7), 1
    for _ in range(6):
        process = subprocess.Popen(
            [sys.executable, "-c", SAVING_WITHOUT_END, str(tmp_path), str(first)],
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        with process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(random.random() * 0.2)
            process.send_signal(signal.SIGKILL)
        for path in step_folders(tmp_path):
            checkpoint = open_checkpoint(path)
            verify(checkpoint)
            content = Contents(checkpoint).tensor("w")
            assert set(content.tolist()) == {float(checkpoint.step)}
        first += 10_000
    assert step_folders(tmp_path)
