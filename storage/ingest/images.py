"""From pictures to arrays: the recipe of `hpcplat data ingest --images`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hpcplat.datasets.manifest import Kind
from hpcplat.errors import InvalidError
from storage.ingest.categories import Coder, joined, translated
from storage.ingest.dealing import Dealt
from storage.ingest.expression import Filter
from storage.ingest.options import ImageOptions, IngestOptions, Splitting
from storage.ingest.parts import Part, PartWriter, Values, name_of
from storage.ingest.pictures import (
    ARCHIVES,
    PICTURES,
    BrokenPictureError,
    Picture,
    Pixels,
    decoded,
    pictures,
)
from storage.ingest.recipe import Task
from storage.ingest.sources import check_unchanged, listed, packed, stamped
from storage.publishing import Draft

_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class ImageRecipe:
    """Pictures become an array (n, height, width, channels) and one of labels."""

    options: ImageOptions

    @property
    def kind(self) -> Kind:
        """The kind of dataset that it makes."""
        return "images"

    def tasks(self, sources: Sequence[str]) -> list[Task]:
        """Cut the sources into tasks: an archive, or some hundred pictures."""
        paths = listed(sources, [*PICTURES, *ARCHIVES])
        return packed(map(stamped, paths), most=500)

    def make_part(self, folder: Path, task: Task, splitting: Splitting) -> None:
        """Read and decode the pictures of a task."""
        counts: Counter[str] = Counter()
        coder = Coder()
        part = PartWriter(folder)
        try:
            for batch in _batches(self._kept(task, counts)):
                labels = [picture.label for picture, _ in batch]
                arrays: dict[str, Values] = {"images": _stacked(batch)}
                arrays["labels"] = coder.codes(labels)
                part.append(arrays, [_name(*one, splitting) for one in batch])
            part.close(counts, {"words": coder.words})
        finally:
            part.drop()

    def _kept(
        self, task: Task, counts: Counter[str]
    ) -> Iterator[tuple[Picture, Pixels]]:
        where = Filter(self.options.where) if self.options.where else None
        for piece in task:
            check_unchanged(piece)
            for picture in pictures(piece, counts):
                counts["pictures read"] += 1
                pixels = self._pixels(picture, counts)
                if pixels is None:
                    continue
                if where is None or where.holds(_fields(picture, pixels)):
                    yield picture, pixels
                else:
                    counts["filtered"] += 1

    def _pixels(self, picture: Picture, counts: Counter[str]) -> Pixels | None:
        try:
            return decoded(picture.content, self.options)
        except BrokenPictureError as error:
            if self.options.broken == "skip":
                counts["broken pictures"] += 1
                return None
            raise InvalidError(
                f"{picture.path} is not a whole picture ({error}).",
                "Mend or remove it, or count such pictures: --broken skip.",
            ) from error

    def write(
        self, draft: Draft, parts: Sequence[Part], dealt: Dealt, options: IngestOptions
    ) -> Mapping[str, Any]:
        """Write images and labels of all splits."""
        shape = _shape(parts)
        old = (
            []
            if draft.parent is None
            else draft.parent.content.attributes["class_names"]
        )
        names = joined(old, [part.notes["words"] for part in parts])
        for split in dealt.splits:
            images = draft.array(
                split, "images", np.dtype(np.uint8), shape, options.compressor
            )
            labels = draft.array(split, "labels", np.dtype(np.int64))
            for part, mask in zip(parts, dealt.masks(split), strict=True):
                if mask.any():
                    whole = mask.all()
                    pixels, codes = part.array("images"), part.array("labels")
                    images.append(pixels if whole else pixels[mask])
                    labels.append(translated(codes[mask], part.notes["words"], names))
            draft.set_samples(split, labels.rows)
        return {"class_names": names}


def _batches(
    found: Iterator[tuple[Picture, Pixels]],
) -> Iterator[list[tuple[Picture, Pixels]]]:
    batch: list[tuple[Picture, Pixels]] = []
    for one in found:
        batch.append(one)
        if len(batch) == _AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch


def _stacked(batch: list[tuple[Picture, Pixels]]) -> Pixels:
    shape = batch[0][1].shape
    for picture, pixels in batch:
        if pixels.shape != shape:
            raise _differ(f"{picture.path} is {pixels.shape}", shape)
    return np.stack([pixels for _, pixels in batch])


def _shape(parts: Sequence[Part]) -> tuple[int, ...]:
    """Return the one shape of all pictures."""
    shapes = {part.array("images").shape[1:] for part in parts if part.arrays}
    if len(shapes) > 1:
        first, second, *_ = sorted(shapes)
        raise _differ(f"Some pictures are {second}", first)
    return shapes.pop()


def _differ(what: str, other: tuple[int, ...]) -> InvalidError:
    return InvalidError(
        f"{what} and others are {other} (height, width, channels).",
        "Give all one size: --size 224x224.",
    )


def _fields(picture: Picture, pixels: Pixels) -> dict[str, Any]:
    height, width = pixels.shape[:2]
    about = {"path": picture.path, "label": picture.label}
    return {**about, "height": height, "width": width}


def _name(picture: Picture, pixels: Pixels, splitting: Splitting) -> bytes:
    return name_of(pixels.tobytes(), _fields(picture, pixels), splitting)
