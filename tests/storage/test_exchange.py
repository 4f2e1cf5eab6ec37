"""Round trips, and against the formats' own readers where they are installed."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zarr
from PIL import Image

from hpcplat.cli.main import main
from hpcplat.datasets import Columns, ImageRows
from hpcplat.datasets.version import DatasetVersion, open_version
from hpcplat.errors import InvalidError, NotFoundError
from storage.exchange import arrays, mds, megatron, webdataset
from storage.exchange.importing import (
    Wanted,
    import_mds,
    import_megatron,
    import_zarr,
)
from storage.ingest.columns import ColumnRecipe
from storage.ingest.images import ImageRecipe
from storage.ingest.options import ColumnOptions, ImageOptions, TextOptions
from storage.ingest.run import Target
from storage.ingest.tokens import TextRecipe

Ingest = Callable[..., DatasetVersion]


@pytest.fixture
def text(ingest: Ingest, corpus: Path) -> DatasetVersion:
    return ingest(TextRecipe(TextOptions()), [corpus], name="text")


@pytest.fixture
def images(ingest: Ingest, tmp_path: Path) -> DatasetVersion:
    values = np.random.default_rng(0).integers(0, 256, (30, 8, 9, 3)).astype(np.uint8)
    for number, pixels in enumerate(values):
        folder = tmp_path / "pictures" / str(number % 3)
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / f"{number:02}.png")
    recipe = ImageRecipe(ImageOptions())
    return ingest(recipe, [tmp_path / "pictures"], name="images")


@pytest.fixture
def columns(ingest: Ingest, tmp_path: Path) -> DatasetVersion:
    x = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    np.savez(tmp_path / "c.npz", x=x, y=np.arange(300))
    recipe = ColumnRecipe(ColumnOptions())
    return ingest(recipe, [tmp_path / "c.npz"], name="columns")


def _same_tokens(one: DatasetVersion, other: DatasetVersion) -> None:
    for name in ("tokens", "documents"):
        first, second = (v.split("train")[name].all_rows() for v in (one, other))
        np.testing.assert_array_equal(first, second)


def _opened(root: Path, name: str) -> DatasetVersion:
    return open_version(name, root)


class TestMegatron:
    def test_its_own_reader_reads_ours(
        self, text: DatasetVersion, tmp_path: Path
    ) -> None:
        indexed = pytest.importorskip("megatron.core.datasets.indexed_dataset")
        megatron.write(text.split("train"), tmp_path / "m")
        found = indexed.IndexedDataset(str(tmp_path / "m"))
        tokens = text.split("train")["tokens"].all_rows()
        ends = text.split("train")["documents"].all_rows().astype(int)
        assert len(found) == 2000
        for number in (0, 1, 777, 1999):
            expected = tokens[ends[number] : ends[number + 1]]
            np.testing.assert_array_equal(found[number], expected)

    def test_we_read_what_its_builder_writes(self, root: Path, tmp_path: Path) -> None:
        indexed = pytest.importorskip("megatron.core.datasets.indexed_dataset")
        documents = [[[1, 2], [3]], [[4, 5, 6]], [[70_000]]]
        builder = indexed.IndexedDatasetBuilder(str(tmp_path / "b.bin"), np.int32)
        for document in documents:
            flat = [token for sequence in document for token in sequence]
            lengths = [len(sequence) for sequence in document]
            builder.add_document(np.array(flat), lengths)
        builder.finalize(str(tmp_path / "b.idx"))
        import_megatron(tmp_path / "b", Wanted(), Target(root, "m"))
        split = _opened(root, "m").split("train")
        assert split["tokens"].all_rows().tolist() == [1, 2, 3, 4, 5, 6, 70_000]
        assert split["documents"].all_rows().tolist() == [0, 3, 6, 7]
        assert split["tokens"].dtype == np.uint32
        assert split.attributes["vocabulary_size"] == 70_001

    def test_there_and_back(
        self, text: DatasetVersion, root: Path, tmp_path: Path
    ) -> None:
        megatron.write(text.split("train"), tmp_path / "m")
        wanted = Wanted(tokenizer="bytes")
        import_megatron(tmp_path / "m", wanted, Target(root, "back"))
        back = _opened(root, "back")
        _same_tokens(text, back)
        assert back.digest == text.digest

    @pytest.mark.parametrize("keep", [0, 20, 100])
    def test_damage_is_refused(
        self, text: DatasetVersion, root: Path, tmp_path: Path, keep: int
    ) -> None:
        megatron.write(text.split("train"), tmp_path / "m")
        index = tmp_path / "m.idx"
        index.write_bytes(index.read_bytes()[:keep])
        with pytest.raises(InvalidError, match="no index"):
            import_megatron(tmp_path / "m", Wanted(), Target(root, "m"))
        with pytest.raises(NotFoundError, match=r"\.idx"):
            import_megatron(tmp_path / "absent", Wanted(), Target(root, "m"))

    def test_a_vocabulary_that_is_too_small_is_refused(
        self, text: DatasetVersion, root: Path, tmp_path: Path
    ) -> None:
        np.array([300], "<u2").tofile(tmp_path / "m.bin")
        megatron.write(text.split("train"), tmp_path / "x")
        head = (tmp_path / "x.idx").read_bytes()[:18]
        body = np.array([1, 2], "<u8").tobytes() + np.array([1], "<i4").tobytes()
        rest = np.array([0, 0, 1], "<i8").tobytes()
        (tmp_path / "m.idx").write_bytes(head + body + rest)
        with pytest.raises(InvalidError, match="Token 300"):
            import_megatron(
                tmp_path / "m", Wanted(tokenizer="bytes"), Target(root, "m")
            )


class TestMds:
    def test_tokens_there_and_back(
        self, text: DatasetVersion, root: Path, tmp_path: Path
    ) -> None:
        mds.write(text.split("train"), tmp_path)
        wanted = Wanted(tokenizer="bytes", column="tokens")
        import_mds(tmp_path, wanted, Target(root, "back"))
        assert _opened(root, "back").digest == text.digest

    def test_columns_there_and_back(
        self, columns: DatasetVersion, root: Path, tmp_path: Path
    ) -> None:
        mds.write(columns.split("train"), tmp_path)
        import_mds(tmp_path, Wanted(), Target(root, "back"))
        one, other = (
            Columns(v.split("train")) for v in (columns, _opened(root, "back"))
        )
        for name in ("x", "y"):
            first, second = (c.rows(np.arange(300))[name] for c in (one, other))
            np.testing.assert_array_equal(first, second)

    def test_a_shard_of_their_writer(self, root: Path, tmp_path: Path) -> None:
        # As MosaicML streaming 0.13 wrote it: columns by name, text and pictures too.
        sample = [
            np.int64(7).tobytes(),
            b"seven",
            bytes([1 << 2, 3]) + np.arange(3, dtype="<u2").tobytes(),
        ]
        free = np.array([len(sample[1]), len(sample[2])], "<u4").tobytes()
        content = free + b"".join(sample)
        about = {
            "column_encodings": ["int", "str", "ndarray:uint16"],
            "column_names": ["label", "name", "tokens"],
            "column_sizes": [8, None, None],
        }
        text = json.dumps(about).encode()
        offsets = np.array([0, len(content)], "<u4") + 4 + 8 + len(text)
        shard = (
            np.uint32(1).tobytes() + offsets.astype("<u4").tobytes() + text + content
        )
        (tmp_path / "shard.00000.mds").write_bytes(shard)
        raw = {"basename": "shard.00000.mds", "bytes": len(shard), "hashes": {}}
        index = {"version": 2, "shards": [{**about, "raw_data": raw, "samples": 1}]}
        (tmp_path / "index.json").write_text(json.dumps(index))
        (found,) = mds.read(tmp_path)
        assert found["label"] == 7
        assert found["name"] == "seven"
        assert isinstance(found["tokens"], np.ndarray)
        assert found["tokens"].tolist() == [0, 1, 2]

    def test_damage_is_refused(self, text: DatasetVersion, tmp_path: Path) -> None:
        mds.write(text.split("train"), tmp_path)
        shard = tmp_path / "shard.00000.mds"
        shard.write_bytes(shard.read_bytes()[:-100])
        with pytest.raises(InvalidError, match="not a whole MDS shard"):
            list(mds.read(tmp_path))
        shard.unlink()
        with pytest.raises(NotFoundError, match="no shard"):
            list(mds.read(tmp_path))


class TestWebDataset:
    def test_images_there_and_back(
        self, images: DatasetVersion, ingest: Ingest, tmp_path: Path
    ) -> None:
        webdataset.write(images.split("train"), tmp_path)
        (shard,) = tmp_path.glob("train-*.tar")
        back = ingest(ImageRecipe(ImageOptions()), [shard], name="back")
        one, other = (ImageRows(v.split("train")) for v in (images, back))
        for first, second in zip(
            one.rows(range(30)), other.rows(range(30)), strict=True
        ):
            np.testing.assert_array_equal(first, second)
        assert back.digest == images.digest

    def test_documents_are_arrays(self, text: DatasetVersion, tmp_path: Path) -> None:
        webdataset.write(text.split("train"), tmp_path)
        with tarfile.open(tmp_path / "train-000000.tar") as archive:
            names = archive.getnames()
            first = archive.extractfile(names[0])
            assert first is not None
            ids = np.load(io.BytesIO(first.read()))
        assert len(names) == 2000
        np.testing.assert_array_equal(
            ids, text.split("train")["tokens"].slice(0, len(ids))
        )


def test_numpy_there_and_back(
    columns: DatasetVersion, ingest: Ingest, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    arrays.write(columns.split("train"), tmp_path / "out")
    np.testing.assert_array_equal(
        np.load(tmp_path / "out" / "train-y.npy"), np.arange(300)
    )
    back = ingest(ColumnRecipe(ColumnOptions()), [tmp_path / "out" / "train-x.npy"])
    np.testing.assert_array_equal(
        back.split("train")["train-x"].all_rows(),
        columns.split("train")["x"].all_rows(),
    )


def test_any_zarr_is_imported(root: Path, tmp_path: Path) -> None:
    group = zarr.create_group(tmp_path / "z")
    values = np.random.default_rng(0).normal(size=(100, 6)).astype(np.float32)
    group.create_array("x", data=values, chunks=(7, 3))
    group.create_array("y", data=np.arange(100), chunks=(10,))
    import_zarr(tmp_path / "z", Wanted(), Target(root, "z"))
    split = _opened(root, "z").split("train")
    np.testing.assert_array_equal(split["x"].all_rows(), values)
    np.testing.assert_array_equal(split["y"].all_rows(), np.arange(100))


@pytest.mark.parametrize("form", ["megatron", "mds", "webdataset", "numpy"])
def test_the_commands(
    text: DatasetVersion,
    root: Path,
    tmp_path: Path,
    form: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = str(tmp_path / "out")
    words = ["data", "export", "text", form, out, "--root", str(root)]
    assert main(words) == 0
    assert main(words) == 1
    assert "is not empty" in capsys.readouterr().err
    if form in ("megatron", "mds"):
        source = f"{out}/train" + ("/tokens" if form == "megatron" else "")
        column = ["--column", "tokens"] if form == "mds" else []
        words = ["data", "import", form, source, "--name", "back", "--root", str(root)]
        assert main([*words, "--tokenizer", "bytes", *column]) == 0
        assert _opened(root, "back").digest == text.digest


def test_what_cannot_be_written_is_said(
    images: DatasetVersion, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "export", "images", "megatron", "x", "--root", str(root)]) == 1
    assert "images are not written as megatron" in capsys.readouterr().err
