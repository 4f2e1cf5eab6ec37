from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from hpcplat.datasets import Augmentation, ImageRows, Normalization
from hpcplat.datasets.images import augmented, normalized
from hpcplat.datasets.version import DatasetVersion
from hpcplat.errors import InvalidError

Make = Callable[..., DatasetVersion]


IMAGES = np.random.default_rng(2).integers(0, 256, (200, 9, 7, 3)).astype(np.uint8)
LABELS = np.arange(200, dtype=np.int64) % 4


@pytest.fixture
def version(make_version: Make) -> DatasetVersion:
    made: DatasetVersion = make_version(
        {"images": IMAGES, "labels": LABELS}, kind="images", class_names=list("abcd")
    )
    return made


def test_rows_are_the_stored_images(version: DatasetVersion) -> None:
    rows = ImageRows(version.split("train"))
    images, labels = rows.rows([7, 3, 7])
    np.testing.assert_array_equal(images, IMAGES[[7, 3, 7]])
    np.testing.assert_array_equal(labels, LABELS[[7, 3, 7]])
    assert rows.class_names == ["a", "b", "c", "d"]
    assert len(rows) == 200


def test_batches_are_normalised_channels_first(version: DatasetVersion) -> None:
    by = Normalization((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))
    rows = ImageRows(version.split("train"), normalization=by, channels_first=True)
    batch = rows.batch([5], [0])
    mean, deviation = (np.array(v)[:, None, None] for v in (by.mean, by.deviation))
    expected = (IMAGES[5].transpose(2, 0, 1) / 255 - mean) / deviation
    assert batch["images"].dtype == np.float32
    np.testing.assert_allclose(batch["images"][0], expected, atol=1e-5)
    np.testing.assert_array_equal(batch["labels"], LABELS[[5]])


def test_a_draw_depends_on_seed_and_place_alone() -> None:
    by = Augmentation(seed=1, shift=2, flip=True, turn=20)
    whole = augmented(IMAGES, by, np.arange(200))
    part = augmented(IMAGES[50:60], by, np.arange(50, 60))
    np.testing.assert_array_equal(part, whole[50:60])
    again = augmented(IMAGES[50:60], by, np.arange(250, 260))
    assert (again != part).any()


def test_a_shift_moves_whole_pixels_and_leaves_black() -> None:
    by = Augmentation(seed=3, shift=2)
    seen = set()
    for image, moved in zip(IMAGES, augmented(IMAGES, by, np.arange(200)), strict=True):
        padded = np.pad(image, ((2, 2), (2, 2), (0, 0)))
        places = [
            (y, x)
            for y in range(5)
            for x in range(5)
            if (padded[y : y + 9, x : x + 7] == moved).all()
        ]
        assert places
        seen.add(places[0])
    assert len(seen) == 25


def test_a_flip_mirrors_half_of_the_images() -> None:
    found = augmented(IMAGES, Augmentation(seed=3, flip=True), np.arange(200))
    same = (found == IMAGES).all(axis=(1, 2, 3))
    mirrored = (found == IMAGES[:, :, ::-1]).all(axis=(1, 2, 3))
    assert (same | mirrored).all()
    assert 70 < mirrored.sum() < 130


def test_a_turn_turns_around_the_centre() -> None:
    image = np.zeros((300, 31, 31, 1), np.uint8)
    image[:, 12:19, 12:19] = 200
    image[:, 15, 29] = 255
    found = augmented(image, Augmentation(seed=5, turn=90), np.arange(300))
    assert (found[:, 15, 15] == 200).all()
    np.testing.assert_allclose(found.mean(axis=(1, 2, 3)), image[0].mean(), rtol=0.05)
    rows, columns = (found[:, :, :, 0] * (found[:, :, :, 0] < 190)).max(2), 0
    # The mark at the right edge ends up above, below and in between.
    heights = [int(np.argmax(row * (np.abs(np.arange(31) - 15) > 4))) for row in rows]
    assert min(heights) < 6
    assert max(heights) > 24
    assert columns == 0


def test_no_turn_is_no_change() -> None:
    found = augmented(IMAGES, Augmentation(seed=5, turn=1e-9), np.arange(200))
    np.testing.assert_array_equal(found, IMAGES)


def test_normalising_keeps_the_shape() -> None:
    assert normalized(IMAGES, Normalization([0.0], [1.0])).shape == IMAGES.shape


def test_nonsense_is_refused() -> None:
    with pytest.raises(InvalidError, match="shift"):
        Augmentation(seed=0, shift=-1)
