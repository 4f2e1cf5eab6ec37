"""Tags, removing, verifying, staging, and manifests that were touched."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hpcplat.datasets.damage import DamagedError, RemovedError
from hpcplat.datasets.manifest import read_manifest
from hpcplat.datasets.store import Store
from hpcplat.datasets.version import DatasetVersion, open_version
from hpcplat.errors import (
    ConflictError,
    InvalidError,
    NotFoundError,
    UnavailableError,
)
from storage import managing, staging
from storage.ingest.options import IngestOptions
from storage.staging import Limits
from storage.verifying import verify

Ingest = Callable[..., DatasetVersion]

AMPLE = Limits(2**40, 1e9)


@pytest.fixture
def folder(ingest_text: Ingest, corpus: Path) -> Path:
    options = IngestOptions(compressor="none")
    return ingest_text([corpus], options=options).folder


@pytest.fixture
def writable(folder: Path) -> Path:
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder


def _flip(path: Path, byte: int, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[byte] ^= 1 << bit
    path.write_bytes(content)


class TestVerify:
    def test_a_whole_version_has_no_fault(self, folder: Path) -> None:
        assert verify(folder, 2) == []

    def test_every_flipped_bit_is_found(self, writable: Path) -> None:
        random = np.random.default_rng(5)
        paths = [p for p in sorted(writable.rglob("*")) if p.is_file()]
        assert len(paths) == 9
        for path in paths:
            whole = path.read_bytes()
            for byte in {
                0,
                len(whole) - 1,
                *random.integers(0, len(whole), 6).tolist(),
            }:
                _flip(path, byte, int(random.integers(8)))
                if path.name == "manifest.json":
                    with pytest.raises(DamagedError, match=r"manifest\.json"):
                        verify(writable, 1)
                else:
                    (fault,) = verify(writable, 1)
                    assert fault.path == path.relative_to(writable).as_posix()
                path.write_bytes(whole)
        assert verify(writable, 1) == []

    @pytest.mark.parametrize("how", ["none", "zstd"])
    def test_it_says_where(self, ingest_text: Ingest, tmp_path: Path, how: str) -> None:
        path = tmp_path / "long.jsonl"
        letters = np.random.default_rng(0).integers(97, 123, 1_000_000)
        text = letters.astype(np.uint8).tobytes().decode()
        path.write_text(json.dumps({"text": text}))
        options = IngestOptions.model_validate({"compressor": how})
        shard = ingest_text([path], options=options).folder / "train/tokens/c.0"
        shard.chmod(0o644)
        place = 5 * 131_072 + 17
        _flip(shard, place, 3)
        (fault,) = verify(shard.parents[2], 1)
        if how == "none":
            assert str(fault) == (
                "train/tokens/c.0 differs in bytes 655360 to 786431: "
                "rows 327680 to 393215"
            )
        else:
            assert "differs in bytes" in str(fault)

    def test_missing_short_and_strange_files(self, writable: Path) -> None:
        (writable / "train/tokens/c.0").unlink()
        os.truncate(writable / "train/documents/c.0", 100)
        (writable / "train/note.txt").write_text("hello")
        found = [str(fault) for fault in verify(writable, 2)]
        assert found[0].startswith("train/documents/c.0 is 100 bytes instead of")
        assert found[1:] == [
            "train/note.txt does not belong to the version",
            "train/tokens/c.0 is missing",
        ]


class TestOpening:
    def test_a_missing_shard_is_named_at_once(self, writable: Path) -> None:
        (writable / "train/tokens/c.0").unlink()
        with pytest.raises(DamagedError, match=r"tokens/c\.0 is missing"):
            DatasetVersion(writable)

    def test_a_truncated_shard_is_named_at_once(self, writable: Path) -> None:
        os.truncate(writable / "train/tokens/c.0", 5000)
        with pytest.raises(DamagedError, match="is 5000 bytes instead of"):
            DatasetVersion(writable)

    def test_another_type_than_the_manifest_says(self, writable: Path) -> None:
        path = writable / "train/tokens/zarr.json"
        text = path.read_text()
        path.write_text(text.replace('"uint16"', '"int16" '))
        with pytest.raises(DamagedError, match="tokens is int16"):
            DatasetVersion(writable).split("train")

    def test_nonsense_in_the_manifest(self, writable: Path) -> None:
        (writable / "manifest.json").write_text("{}")
        with pytest.raises(
            DamagedError, match=r"manifest\.json is not what was written"
        ):
            DatasetVersion(writable)

    def test_an_unknown_split_names_those_there_are(self, folder: Path) -> None:
        with pytest.raises(NotFoundError, match="It has: train"):
            DatasetVersion(folder).split("test")


class TestTagsAndRemoval:
    @pytest.fixture
    def store(self, root: Path, ingest_text: Ingest, corpus: Path) -> Store:
        ingest_text([corpus])
        ingest_text([corpus], shortest=15)
        return Store(root)

    def test_tags_name_versions(self, store: Store) -> None:
        first, second = store.versions("made")
        assert store.tags("made") == {"latest": second}
        managing.tag(store, f"made@{first[:8]}", "v1")
        assert open_version("made@v1", store.root).digest == first
        assert open_version("made", store.root).digest == second
        managing.untag(store, "made", "v1")
        with pytest.raises(NotFoundError, match="v1"):
            open_version("made@v1", store.root)

    def test_a_tagged_version_stays(self, store: Store) -> None:
        first, second = store.versions("made")
        managing.tag(store, f"made@{first}", "v1")
        with pytest.raises(ConflictError, match="tagged v1"):
            managing.remove(store, "made@v1")
        managing.remove(store, "made@v1", force=True)
        assert store.versions("made") == [second]
        assert store.tags("made") == {"latest": second}

    def test_latest_falls_back(self, store: Store) -> None:
        first, second = store.versions("made")
        managing.remove(store, f"made@{second}")
        assert store.tags("made") == {"latest": first}

    def test_a_version_that_is_read_stays(self, store: Store) -> None:
        version = open_version("made", store.root)
        with pytest.raises(ConflictError, match="is being read"):
            managing.remove(store, "made")
        # By force its reader goes on with what it has mapped, or hears of it.
        split = version.split("train")
        before = split["tokens"].all_rows()
        managing.remove(store, "made", force=True)
        np.testing.assert_array_equal(split["tokens"].all_rows(), before)
        with pytest.raises(DamagedError, match="is missing"):
            version.split("train")["tokens"].all_rows()

    def test_all_versions_go(self, store: Store) -> None:
        assert managing.remove_all(store, "made") == 2
        assert store.names() == []


class TestStaging:
    @pytest.fixture
    def local(self, tmp_path: Path) -> Path:
        return tmp_path / "local"

    def test_a_copy_is_whole_and_made_once(self, folder: Path, local: Path) -> None:
        seen: list[tuple[int, int]] = []
        copy = staging.stage(folder, local, AMPLE, 2, lambda a, b: seen.append((a, b)))
        assert verify(copy, 1) == []
        assert seen[-1][0] == seen[-1][1] > 0
        count = len(seen)
        again = staging.stage(folder, local, AMPLE, 2, lambda a, b: seen.append((a, b)))
        assert again == copy
        assert len(seen) == count
        assert open_version(copy).digest == folder.name

    def test_jobs_that_come_together_copy_once(self, folder: Path, local: Path) -> None:
        copies: list[tuple[int, int]] = []

        def work() -> None:
            staging.stage(folder, local, AMPLE, 1, lambda a, b: copies.append((a, b)))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(copies) == len(read_manifest(folder).content.files)

    def test_a_damaged_source_leaves_nothing(self, writable: Path, local: Path) -> None:
        _flip(writable / "train/tokens/c.0", 100, 0)
        with pytest.raises(DamagedError, match=r"tokens/c\.0 is not what was written"):
            staging.stage(writable, local, AMPLE, 2, lambda a, b: None)
        assert not [p for p in local.iterdir() if p.is_dir()]

    def test_the_copy_is_opened_where_there_is_one(
        self, folder: Path, local: Path
    ) -> None:
        assert open_version(folder, staged=local).folder == folder
        copy = staging.stage(folder, local, AMPLE, 1, lambda a, b: None)
        assert open_version(folder, staged=local).folder == copy

    def test_a_copy_that_makes_room_just_now_is_not_opened(
        self, folder: Path, local: Path
    ) -> None:
        copy = staging.stage(folder, local, AMPLE, 1, lambda a, b: None)
        with (copy / "manifest.json").open() as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # as who removes it does
            assert open_version(folder, staged=local).folder == folder
            with pytest.raises(RemovedError):
                open_version(copy)

    def test_what_a_killed_copy_left_is_swept_away(
        self, folder: Path, local: Path
    ) -> None:
        local.mkdir()
        others = [local / f".{folder.name}.123", local / f".{'a' * 64}.gone-5"]
        busy = local / f".{'b' * 64}.77"
        for path in (*others, busy):
            (path / "train").mkdir(parents=True)
        with (local / f".lock-{'b' * 64}").open("w") as copying:
            fcntl.flock(copying, fcntl.LOCK_EX)
            staging.stage(folder, local, AMPLE, 1, lambda a, b: None)
        assert busy.exists()
        assert not any(path.exists() for path in others)

    def test_a_folder_of_somebody_elses_is_refused(self, tmp_path: Path) -> None:
        own = staging.own_folder(tmp_path)
        assert own.stat().st_mode & 0o777 == 0o700
        assert staging.own_folder(tmp_path) == own
        link = tmp_path / "disk" / own.name
        link.parent.mkdir()
        link.symlink_to(own)  # as somebody else could lay it in /tmp
        with pytest.raises(InvalidError, match="belongs to somebody else"):
            staging.own_folder(link.parent)

    def test_what_does_not_fit_is_refused(
        self, folder: Path, local: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        usage = shutil._ntuple_diskusage(2**30, 2**30, 2**30)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
        with pytest.raises(UnavailableError, match=r"has room for 0\.0 GiB"):
            staging.stage(folder, local, AMPLE, 2, lambda a, b: None)

    def test_what_is_larger_than_all_that_is_allowed_is_refused(
        self, folder: Path, local: Path
    ) -> None:
        with pytest.raises(UnavailableError, match="or allow more"):
            staging.stage(folder, local, Limits(1000, 1e9), 2, lambda a, b: None)

    def test_old_ones_and_the_oldest_go_but_none_that_is_read(
        self, ingest_text: Ingest, corpus: Path, local: Path
    ) -> None:
        copies = []
        for shortest in (5, 10, 15):
            made = ingest_text([corpus], shortest=shortest).folder
            copies.append(staging.stage(made, local, AMPLE, 1, lambda a, b: None))
        for age, copy in zip((300, 200, 100), copies, strict=True):
            mark = local / f"{staging.USED}{copy.name}"
            os.utime(mark, (time.time() - age,) * 2)
        reader = open_version(copies[0])
        assert staging.evict(local, Limits(2**40, 250)) == []
        del reader
        assert staging.evict(local, Limits(2**40, 250)) == [copies[0].name]
        size = sum(p.stat().st_size for p in copies[2].rglob("*") if p.is_file())
        assert staging.evict(local, Limits(size + 10, 1e9)) == [copies[1].name]
        assert [p for p in local.iterdir() if p.is_dir()] == [copies[2]]
