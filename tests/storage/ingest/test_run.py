"""Kills, twins, full disks: the same version in the end, or none."""

from __future__ import annotations

import errno
import itertools
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hpcplat.datasets.manifest import read_manifest
from hpcplat.datasets.store import Store
from hpcplat.datasets.version import DatasetVersion
from hpcplat.errors import ConflictError, InvalidError, UnavailableError
from hpcplat.processes import kill_group
from storage import writing
from storage.ingest.columns import ColumnRecipe
from storage.ingest.options import (
    ColumnOptions,
    IngestOptions,
    Splitting,
    TextOptions,
)
from storage.ingest.run import Plan, Share, Target, ingest_share, quiet, run_ingest
from storage.ingest.sources import stamped
from storage.ingest.tokens import TextRecipe
from storage.publishing import changing
from storage.verifying import verify

Ingest = Callable[..., DatasetVersion]

PROGRAM = Path(__file__).with_name("killed_ingest.py")


@pytest.fixture
def many(tmp_path: Path) -> list[Path]:
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(24):
        lines = ({"text": f"{number % 20} {row} " * 20} for row in range(400))
        text = "\n".join(map(json.dumps, lines))
        (folder / f"{number:02}.jsonl").write_text(text)
    return sorted(folder.iterdir())


def _start(root: Path, many: list[Path], processes: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), str(root), str(processes), *map(str, many)],
        start_new_session=True,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_kills_at_any_moment_change_nothing(root: Path, many: list[Path]) -> None:
    undisturbed = _start(root / "calm", many, 1).communicate(timeout=120)[0].strip()
    random_ = random.Random(7)
    moments = [*(f"parts/{n:07}" for n in (0, 3, 7, 8, 15, 22, 23)), *["version"] * 5]
    for moment in moments:
        run = _start(root / "rough", many, random_.choice([1, 2]))
        _wait_for(root / "rough/made", moment, run)
        time.sleep(random_.uniform(0, 0.05))
        kill_group(run.pid)
        run.communicate()
        for seen in root.glob("rough/made/versions/*"):
            assert verify(seen, 1) == []
    last = _start(root / "rough", many, 1)
    assert last.communicate(timeout=120)[0].strip() == undisturbed
    assert verify(root / "rough/made/versions" / undisturbed, 1) == []
    assert not (root / "rough/made/drafts").exists()


def _wait_for(dataset: Path, moment: str, run: subprocess.Popen[str]) -> None:
    """Wait until a part is there, or until the version is being put together."""
    pattern = "drafts/*.version/*" if moment == "version" else f"drafts/*/{moment}"
    deadline = time.monotonic() + 60
    while run.poll() is None and time.monotonic() < deadline:
        if list(dataset.glob(pattern)):
            return
        time.sleep(0.002)


def test_the_number_of_processes_changes_nothing(
    ingest: Ingest, many: list[Path]
) -> None:
    recipe = TextRecipe(TextOptions())
    one = ingest(recipe, many, name="one")
    three = ingest(recipe, many, name="three", processes=3)
    assert one.digest == three.digest


def test_workers_of_a_job_share_the_tasks(root: Path, many: list[Path]) -> None:
    tasks = [(stamped(str(path)),) for path in many]
    plan = Plan(TextRecipe(TextOptions()), IngestOptions(), tasks)
    alone = run_ingest(plan, Target(root, "alone"))
    target = Target(root, "shared")
    for number in (2, 1):
        assert ingest_share(plan, target, Share(number, 3), 1, quiet) is None
    shared = ingest_share(plan, target, Share(0, 3), 1, quiet)
    assert shared is not None
    assert shared.digest == alone.digest


def test_what_was_done_is_not_done_again(
    root: Path, many: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = [(stamped(str(path)),) for path in many]
    plan = Plan(TextRecipe(TextOptions()), IngestOptions(), tasks)
    broken = many[5].read_text()
    many[5].unlink()
    with pytest.raises(UnavailableError, match=r"05\.jsonl is gone"):
        run_ingest(plan, Target(root, "made"))
    made = sorted(p.name for p in root.glob("made/drafts/*/parts/*"))
    assert made == [f"{n:07}" for n in range(5)]
    many[5].write_text(broken)
    os.utime(many[5], ns=(0, int(tasks[5][0].stamp)))
    seen: list[tuple[int, int]] = []
    run_ingest(plan, Target(root, "made"), progress=lambda a, b: seen.append((a, b)))
    assert seen[0] == (5, 24)
    assert seen[-1] == (24, 24)


def test_a_source_that_changes_meanwhile_is_refused(
    root: Path, many: list[Path]
) -> None:
    tasks = [(stamped(str(path)),) for path in many]
    many[3].write_text('{"text": "other"}')
    plan = Plan(TextRecipe(TextOptions()), IngestOptions(), tasks)
    with pytest.raises(UnavailableError, match=r"03\.jsonl has changed"):
        run_ingest(plan, Target(root, "made"))


def test_two_ingests_of_one_name_do_not_meet(
    root: Path, ingest_text: Ingest, corpus: Path
) -> None:
    with changing(root, "made"):
        with pytest.raises(ConflictError, match=rf"process {os.getpid()} on"):
            ingest_text([corpus])
        ingest_text([corpus], name="other")
    ingest_text([corpus])


@pytest.mark.parametrize("after", [0, 3])
def test_a_full_disk_publishes_nothing_and_is_gone_on_from(
    root: Path,
    ingest_text: Ingest,
    corpus: Path,
    monkeypatch: pytest.MonkeyPatch,
    after: int,
) -> None:
    # A disk cannot be filled on cue without mounting one.
    writes = itertools.count()
    whole = writing._Shard.write

    def write(shard: writing._Shard, data: memoryview) -> None:
        if next(writes) >= after:
            raise OSError(errno.ENOSPC, "No space left on device")
        whole(shard, data)

    with monkeypatch.context() as patch:
        patch.setattr(writing._Shard, "write", write)
        with pytest.raises(UnavailableError, match="is full; nothing was published"):
            ingest_text([corpus])
    assert Store(root).versions("made") == []
    version = ingest_text([corpus])
    assert verify(version.folder, 1) == []


class TestAppending:
    OPTIONS = IngestOptions(
        splitting=Splitting(fractions={"test": 0.2}), shard_mib=1, compressor="none"
    )

    def test_full_shards_are_shared(
        self, root: Path, ingest_text: Ingest, tmp_path: Path
    ) -> None:
        files = []
        for number in range(2):
            path = tmp_path / f"{number}.jsonl"
            lines = ({"text": f"{number} {n} " * 40} for n in range(8000))
            path.write_text("\n".join(map(json.dumps, lines)))
            files.append(path)
        first = ingest_text([files[0]], options=self.OPTIONS)
        longer = ingest_text([files[1]], options=self.OPTIONS, append=True)
        assert longer.manifest.parent == first.digest
        assert verify(longer.folder, 1) == []
        whole = ingest_text(files, options=self.OPTIONS, name="at-once")
        for split in ("train", "test"):
            for name in ("tokens", "documents"):
                np.testing.assert_array_equal(
                    longer.split(split)[name].all_rows(),
                    whole.split(split)[name].all_rows(),
                )
            assert longer.split(split).samples == whole.split(split).samples
        # The content is that of one ingest of both, so it has the same name.
        assert longer.digest == whole.digest
        shared = [
            path
            for path in first.folder.rglob("c.*")
            if (longer.folder / path.relative_to(first.folder)).samefile(path)
        ]
        arrays = (
            first.split(split)[name].format
            for split in ("train", "test")
            for name in ("tokens", "documents")
        )
        full = sum(array.rows // array.shard_rows for array in arrays)
        assert len(shared) == full > 0
        assert Store(root).tags("made")["latest"] == longer.digest

    def test_repeats_of_what_is_there_are_left_out(
        self, ingest_text: Ingest, tmp_path: Path
    ) -> None:
        def texts(*numbers: int) -> Path:
            path = tmp_path / f"{numbers[0]}-{numbers[-1]}.jsonl"
            lines = (json.dumps({"text": f"text {n}"}) for n in numbers)
            path.write_text("\n".join(lines))
            return path

        once = IngestOptions(deduplicate=True)
        ingest_text([texts(1, 2, 3, 2)], options=once)
        longer = ingest_text([texts(3, 4, 4, 1)], options=once, append=True)
        assert longer.split("train").samples == 4
        assert longer.manifest.provenance["counts"]["repeats"] == 3
        whole = ingest_text([texts(*range(1, 5))], options=once, name="at-once")
        assert longer.digest == whole.digest
        # Not asked for, they come in, and are known all the same.
        ingest_text([texts(4, 5)], append=True)
        again = ingest_text([texts(5, 6)], options=once, append=True)
        assert again.split("train").samples == 7
        assert verify(again.folder, 1) == []

    def test_a_version_with_repeats_can_not_be_told_from(
        self, ingest_text: Ingest, corpus: Path
    ) -> None:
        ingest_text([corpus])
        with pytest.raises(InvalidError, match="made without --deduplicate"):
            ingest_text([corpus], options=IngestOptions(deduplicate=True), append=True)

    def test_what_does_not_fit_is_refused(
        self, ingest_text: Ingest, corpus: Path, root: Path
    ) -> None:
        before = ingest_text([corpus])
        splitting = Splitting(fractions={"other": 0.5})
        longer = ingest_text(
            [corpus], options=IngestOptions(splitting=splitting), append=True
        )
        assert sorted(longer.splits) == ["other", "train"]
        path = corpus.with_suffix(".npy")
        np.save(path, np.arange(3))
        plan = Plan.of(ColumnRecipe(ColumnOptions()), IngestOptions(), [str(path)])
        with pytest.raises(InvalidError, match="holds tokens, not columns"):
            run_ingest(plan, Target(root, "made", append=True))
        assert read_manifest(before.folder).digest == before.digest


def test_the_same_again_is_the_same_version(
    root: Path, ingest_text: Ingest, corpus: Path
) -> None:
    first = ingest_text([corpus])
    time.sleep(0.01)
    again = ingest_text([corpus])
    assert again.digest == first.digest
    assert Store(root).versions("made") == [first.digest]
