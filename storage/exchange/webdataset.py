"""WebDataset: tar shards in which a sample's files share a name up to the first dot."""

from __future__ import annotations

import io
import itertools
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from hpcplat.datasets.png import encoded
from hpcplat.datasets.version import Split
from hpcplat.errors import InvalidError

_SHARD_BYTES = 2**28


Files = dict[str, bytes]


def write(split: Split, folder: Path) -> None:
    """Write a split: images as PNG with their class, documents and rows as .npy."""
    number = 0
    for shard, group in enumerate(_groups(_samples(split))):
        path = folder / f"{split.name}-{shard:06}.tar"
        with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
            for files in group:
                _add(archive, f"{number:09}", files)
                number += 1


def _groups(samples: Iterator[Files]) -> Iterator[list[Files]]:
    group: list[Files] = []
    size = 0
    for files in samples:
        group.append(files)
        size += sum(map(len, files.values()))
        if size >= _SHARD_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _add(archive: tarfile.TarFile, key: str, files: Files) -> None:
    for end, content in files.items():
        member = tarfile.TarInfo(f"{key}.{end}")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))


def _samples(split: Split) -> Iterator[Files]:
    kind = split.version.kind
    if kind == "images":
        return _images(split)
    if kind == "tokens":
        return _documents(split)
    return _rows(split)


def _images(split: Split) -> Iterator[Files]:
    images, labels = split["images"], split["labels"]
    if images.shape[3] not in (1, 3):
        raise InvalidError(
            f"Images of {images.shape[3]} channels are no PNG.", "Export to numpy."
        )
    for row in range(len(images)):
        label = int(labels.slice(row, row + 1)[0])
        image = images.slice(row, row + 1)[0]
        yield {"png": encoded(image), "cls": str(label).encode()}


def _documents(split: Split) -> Iterator[Files]:
    offsets = split["documents"].all_rows().tolist()
    for start, stop in itertools.pairwise(offsets):
        yield {"npy": _npy(split["tokens"].slice(start, stop))}


def _rows(split: Split) -> Iterator[Files]:
    for row in range(split.samples):
        columns = {name: split[name].slice(row, row + 1)[0] for name in split.names}
        yield {f"{name}.npy": _npy(values) for name, values in columns.items()}


def _npy(values: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()
