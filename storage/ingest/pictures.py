"""Pictures of files and archives, with their labels; nothing is ever extracted."""

from __future__ import annotations

import io
import json
import tarfile
import warnings
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt

from hpcplat.errors import InvalidError
from storage.ingest.options import ImageOptions
from storage.ingest.sources import Piece, needs, opened, without_secrets

PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tiff", ".ppm", ".pgm")
ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.zst", ".zip")

# What the decoders are known to raise on damaged bytes.
_DAMAGE = (OSError, SyntaxError, ValueError, EOFError, IndexError, ArithmeticError)

Pixels = npt.NDArray[np.uint8]


class BrokenPictureError(ValueError):
    """The bytes are no picture."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture as it is stored, its label, and its path (in an archive: inside)."""

    path: str
    label: str
    content: bytes


def pictures(piece: Piece, counts: Counter[str]) -> Iterator[Picture]:
    """Yield the pictures of a file or archive in order.

    The label is what stands in a ``.cls`` or ``.json`` file of the same name (as in
    WebDataset shards), else the name of the folder. Members of archives whose names
    lead out of them are counted and left alone.
    """
    name = piece.path.lower()
    if name.endswith(".zip"):
        yield from _grouped(_of_zip(piece, counts))
    elif name.endswith(ARCHIVES):
        yield from _grouped(_of_tar(piece, counts))
    else:
        with opened(piece.path) as file:
            path = PurePosixPath(without_secrets(piece.path))
            yield Picture(str(path), path.parent.name, file.read())


def _of_tar(piece: Piece, counts: Counter[str]) -> Iterator[tuple[str, bytes]]:
    with opened(piece.path) as raw:
        try:
            with tarfile.open(fileobj=raw, mode="r|") as archive:
                for member in archive:
                    content = archive.extractfile(member) if member.isfile() else None
                    if content is not None and _is_safe(member.name, counts):
                        yield member.name, content.read()
        except tarfile.TarError as error:
            raise InvalidError(
                f"{without_secrets(piece.path)} is not a whole tar archive ({error}).",
                "Fetch or pack it again.",
            ) from error


def _of_zip(piece: Piece, counts: Counter[str]) -> Iterator[tuple[str, bytes]]:
    with opened(piece.path) as raw:
        try:
            with zipfile.ZipFile(raw) as archive:
                for member in archive.infolist():
                    if not member.is_dir() and _is_safe(member.filename, counts):
                        yield member.filename, archive.read(member)
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
            raise InvalidError(
                f"{without_secrets(piece.path)} is not a whole zip archive ({error}).",
                "Fetch or pack it again.",
            ) from error


def _is_safe(name: str, counts: Counter[str]) -> bool:
    path = PurePosixPath(name.replace("\\", "/"))
    safe = not path.is_absolute() and ".." not in path.parts
    counts["unsafe names"] += not safe
    return safe


def _grouped(members: Iterator[tuple[str, bytes]]) -> Iterator[Picture]:
    """Join members that follow each other and share a name up to the first dot."""
    stem, group = "", dict[str, bytes]()
    for name, content in members:
        path = PurePosixPath(name)
        base, _, suffix = path.name.partition(".")
        if str(path.parent / base) != stem:
            yield from _picture(stem, group)
            stem, group = str(path.parent / base), {}
        group[f".{suffix.lower()}"] = content
    yield from _picture(stem, group)


def _picture(stem: str, group: Mapping[str, bytes]) -> Iterator[Picture]:
    for suffix in PICTURES:
        if suffix in group:
            label = _label(group) or PurePosixPath(stem).parent.name
            yield Picture(f"{stem}{suffix}", label, group[suffix])


def _label(group: Mapping[str, bytes]) -> str:
    if ".cls" in group:
        return group[".cls"].decode(errors="replace").strip()
    try:
        about = json.loads(group.get(".json", b"{}"))
    except ValueError:  # some other JSON beside the picture: it names no label
        return ""
    if not isinstance(about, dict):
        return ""
    return str(about.get("label", about.get("cls", "")))


def decoded(content: bytes, options: ImageOptions) -> Pixels:
    """Return a picture as (height, width, channels), turned upright and fitted.

    Raises BrokenPictureError for bytes that are no whole picture, or too large.
    """
    image_module, ops = needs("PIL.Image"), needs("PIL.ImageOps")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            image = image_module.open(io.BytesIO(content))
            image = ops.exif_transpose(image)
            image = image.convert("RGB" if options.channels == 3 else "L")
            image = _fitted(image, options, ops)
            pixels = np.asarray(image, dtype=np.uint8)
    except (*_DAMAGE, image_module.DecompressionBombError, Warning) as error:
        raise BrokenPictureError(str(error)) from error
    return pixels.reshape(*pixels.shape[:2], options.channels)


def _fitted(image: Any, options: ImageOptions, ops: Any) -> Any:  # noqa: ANN401
    if options.size is None:
        return image
    size = options.size[1], options.size[0]
    if options.fit == "crop":
        return ops.fit(image, size)
    if options.fit == "pad":
        return ops.pad(image, size)
    return image.resize(size)
