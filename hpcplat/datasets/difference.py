"""What differs between two versions, from their manifests alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hpcplat.datasets.manifest import Manifest
from hpcplat.quantities import counted


def differences(old: Manifest, new: Manifest) -> Iterator[str]:
    """Yield a line for each thing that differs: attributes, splits, files, origin."""
    if old.digest == new.digest:
        return
    yield from _values("attribute", old.content.attributes, new.content.attributes)
    yield from _values("splits", _counts(old), _counts(new))
    yield from _values("option", _options(old), _options(new))
    yield from _files(old, new)
    if new.parent == old.digest:
        yield "the second was made by adding to the first"


def _values(what: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted({*old, *new}):
        before, after = old.get(name), new.get(name)
        if before != after:
            yield f"{what} {name}: {_short(before)} -> {_short(after)}"


def _short(value: object) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _counts(manifest: Manifest) -> dict[str, str]:
    found = {}
    for name, split in manifest.content.splits.items():
        found[name] = counted(split.samples, "sample")
        for array, schema in split.arrays.items():
            found[f"{name}/{array}"] = f"{schema.dtype} {list(schema.shape)}"
    return found


def _options(manifest: Manifest) -> Mapping[str, Any]:
    options = manifest.provenance.get("options", {})
    return options if isinstance(options, Mapping) else {}


def _files(old: Manifest, new: Manifest) -> Iterator[str]:
    before = {entry.sha256: entry.size for entry in old.content.files.values()}
    after = {entry.sha256: entry.size for entry in new.content.files.values()}
    for what, names in (
        ("shared", before.keys() & after.keys()),
        ("only in the first", before.keys() - after.keys()),
        ("only in the second", after.keys() - before.keys()),
    ):
        size = sum((before | after)[name] for name in names)
        if names:
            yield f"files {what}: {len(names)}, {size:,} bytes"
