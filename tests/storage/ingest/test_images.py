from __future__ import annotations

import io
import json
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from hpcplat.datasets import ImageRows
from hpcplat.datasets.version import DatasetVersion
from hpcplat.errors import InvalidError
from storage.ingest.images import ImageRecipe
from storage.ingest.options import ImageOptions, IngestOptions, Splitting

Ingest = Callable[..., DatasetVersion]
Pixels = npt.NDArray[np.uint8]

CLASSES = ["ant", "bee", "cat"]
PICTURES = np.random.default_rng(3).integers(0, 256, (12, 6, 5, 3)).astype(np.uint8)


def png(pixels: Pixels) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write four pictures for each of three classes."""
    for number, pixels in enumerate(PICTURES):
        place = tmp_path / "pictures" / CLASSES[number // 4]
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number:02}.png").write_bytes(png(pixels))
    return tmp_path / "pictures"


def stored(version: DatasetVersion) -> tuple[Pixels, list[str]]:
    rows = ImageRows(version.split("train"))
    images, labels = rows.rows(np.arange(len(rows)))
    return images, [rows.class_names[label] for label in labels]


def test_a_folder_for_each_class(ingest: Ingest, folder: Path) -> None:
    images, labels = stored(ingest(ImageRecipe(ImageOptions()), [folder]))
    np.testing.assert_array_equal(images, PICTURES)
    assert labels == [CLASSES[n // 4] for n in range(12)]


@pytest.mark.parametrize("form", ["tar", "tar.gz", "tgz", "zip"])
def test_archives_hold_the_same(
    ingest: Ingest, folder: Path, tmp_path: Path, form: str
) -> None:
    path = tmp_path / f"archive.{form}"
    files = sorted(folder.rglob("*.png"))
    if form == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            for file in files:
                archive.write(file, file.relative_to(folder))
    else:
        with tarfile.open(path, "w" if form == "tar" else "w:gz") as tar:
            for file in files:
                tar.add(file, file.relative_to(folder))
    images, labels = stored(ingest(ImageRecipe(ImageOptions()), [path]))
    np.testing.assert_array_equal(images, PICTURES)
    assert labels == [CLASSES[n // 4] for n in range(12)]


def _tar(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def test_labels_of_webdataset_shards(ingest: Ingest, tmp_path: Path) -> None:
    members = {}
    for number, pixels in enumerate(PICTURES):
        members[f"{number:06}.png"] = png(pixels)
        if number % 2:
            members[f"{number:06}.cls"] = str(number % 12).encode()
        else:
            members[f"{number:06}.json"] = json.dumps({"label": number}).encode()
    path = _tar(tmp_path / "shard-000000.tar", members)
    version = ingest(ImageRecipe(ImageOptions()), [path])
    images, labels = stored(version)
    np.testing.assert_array_equal(images, PICTURES)
    assert labels == [str(n) for n in range(12)]
    # Sorted as numbers: 2 comes before 10.
    assert version.split("train").attributes["class_names"] == labels


@pytest.mark.parametrize("name", ["../../evil/a.png", "/evil/a.png", "x/../../a.png"])
def test_names_that_lead_out_of_an_archive_are_counted(
    ingest: Ingest, tmp_path: Path, name: str
) -> None:
    before = set(tmp_path.parent.rglob("a.png"))
    picture = png(PICTURES[0])
    path = _tar(tmp_path / "evil.tar", {name: picture, "fine/a.png": picture})
    version = ingest(ImageRecipe(ImageOptions()), [path])
    assert version.manifest.provenance["counts"]["unsafe names"] == 1
    assert stored(version)[1] == ["fine"]
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as archive:
        archive.writestr(name, picture)
        archive.writestr("fine/a.png", picture)
    version = ingest(ImageRecipe(ImageOptions()), [tmp_path / "evil.zip"])
    assert version.manifest.provenance["counts"]["unsafe names"] == 1
    assert set(tmp_path.parent.rglob("a.png")) == before


@pytest.mark.parametrize(
    "damage", [lambda b: b[: len(b) // 2], lambda b: b"", lambda b: b"GIF89a" + b[6:]]
)
def test_a_broken_picture_fails_or_is_counted(
    ingest: Ingest, folder: Path, damage: Callable[[bytes], bytes]
) -> None:
    path = folder / "bee" / "05.png"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(InvalidError, match=r"05\.png is not a whole picture"):
        ingest(ImageRecipe(ImageOptions()), [folder])
    version = ingest(ImageRecipe(ImageOptions(broken="skip")), [folder])
    assert version.split("train").samples == 11
    assert version.manifest.provenance["counts"]["broken pictures"] == 1


def test_a_picture_too_large_to_be_true_is_broken(
    ingest: Ingest, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 20)
    with pytest.raises(InvalidError, match="not a whole picture"):
        ingest(ImageRecipe(ImageOptions()), [folder])


def test_sizes_must_be_equal_or_given(ingest: Ingest, folder: Path) -> None:
    (folder / "cat" / "odd.png").write_bytes(png(PICTURES[0][:3]))
    with pytest.raises(InvalidError, match="--size"):
        ingest(ImageRecipe(ImageOptions()), [folder])
    recipe = ImageRecipe(ImageOptions(size=(4, 4)))
    assert ingest(recipe, [folder]).split("train")["images"].shape == (13, 4, 4, 3)


@pytest.mark.parametrize("fit", ["crop", "pad", "stretch"])
def test_fitting_keeps_what_it_says(ingest: Ingest, tmp_path: Path, fit: str) -> None:
    wide = np.zeros((20, 60, 3), np.uint8)
    wide[:, :20], wide[:, 20:40], wide[:, 40:] = 50, 150, 250
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "wide.png").write_bytes(png(wide))
    options = ImageOptions.model_validate({"size": (30, 30), "fit": fit})
    images, _ = stored(ingest(ImageRecipe(options), [tmp_path / "x"]))
    row, column = images[0, 15, :, 0], images[0, :, 15, 0]
    if fit == "crop":
        assert (np.abs(images.astype(int) - 150) < 30).all()
    elif fit == "pad":
        assert column[0] == 0
        assert (row[0], row[-1]) == (50, 250)
    else:
        assert (column == 150).all()
        assert (row[0], row[15], row[-1]) == (50, 150, 250)


def test_grey_pictures_have_one_channel(ingest: Ingest, folder: Path) -> None:
    version = ingest(ImageRecipe(ImageOptions(channels=1)), [folder])
    assert version.split("train")["images"].shape == (12, 6, 5, 1)


def test_a_turned_photograph_is_put_upright(ingest: Ingest, tmp_path: Path) -> None:
    image = Image.fromarray(PICTURES[0])
    exif = Image.Exif()
    exif[0x0112] = 3  # upside down
    (tmp_path / "x").mkdir()
    image.save(tmp_path / "x" / "turned.png", exif=exif)
    images, _ = stored(ingest(ImageRecipe(ImageOptions()), [tmp_path / "x"]))
    np.testing.assert_array_equal(images[0], PICTURES[0][::-1, ::-1])


def test_filters_splits_and_repeats(ingest: Ingest, folder: Path) -> None:
    (folder / "ant" / "again.png").write_bytes(png(PICTURES[0]))
    splitting = Splitting(fractions={"test": 0.5}, strata="label")
    options = IngestOptions(splitting=splitting, deduplicate=True)
    recipe = ImageRecipe(ImageOptions(where="label != 'cat'"))
    version = ingest(recipe, [folder], options)
    counts = version.manifest.provenance["counts"]
    assert (counts["filtered"], counts["repeats"]) == (4, 1)
    test = ImageRows(version.split("test"))
    assert 2 <= len(test) <= 5
    assert set(test.class_names) == {"ant", "bee"}


def test_new_classes_come_after_the_old(ingest: Ingest, folder: Path) -> None:
    first = ingest(ImageRecipe(ImageOptions()), [folder / "bee"])
    both = ingest(ImageRecipe(ImageOptions()), [folder / "ant"], append=True)
    assert first.split("train").attributes["class_names"] == ["bee"]
    assert both.split("train").attributes["class_names"] == ["bee", "ant"]
    assert stored(both)[1] == ["bee"] * 4 + ["ant"] * 4
