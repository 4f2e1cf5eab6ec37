"""Weights out of a checkpoint as one safetensors file, layer by layer.

The format: 8 bytes with the header's length (little endian), the header as JSON, then
the tensors' bytes one after another (github.com/huggingface/safetensors, "Format").
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path

import torch

from hpcplat.checkpoints.folder import Checkpoint
from hpcplat.checkpoints.manifest import TensorEntry
from hpcplat.checkpoints.piece import ITEM_SIZES, Block
from hpcplat.checkpoints.reading import Contents
from hpcplat.errors import InvalidError
from hpcplat.files import sync_folder

NAMES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
}
LAYERS = ".layers."


@dataclass(frozen=True, slots=True)
class Exported:
    """A tensor in the file: its name there, and the block of a logical one it is."""

    name: str
    key: str
    dtype: str
    block: Block
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return prod(self.shape) * ITEM_SIZES[self.dtype]


def export(checkpoint: Checkpoint, target: Path, prefix: str = "model.") -> int:
    """Write the tensors whose keys begin with ``prefix``; returns how many.

    The prefix is left out of the names. Layers, which one logical tensor holds together,
    become tensors of their own (``decoder.layers.3.mlp…``). The file appears whole, or
    not at all; InvalidError when there is nothing to write.
    """
    wanted = list(_exported(checkpoint, prefix))
    if not wanted:
        raise InvalidError(
            f"{checkpoint.folder.root} has no tensors that begin with {prefix}.",
            "`hpcplat ckpt show` lists what it has.",
        )
    aside = target.with_name(f".{target.name}.partial")
    contents = Contents(checkpoint)
    try:
        with aside.open("wb") as file:
            file.write(_header(checkpoint, wanted))
            for one in wanted:
                found = contents.tensor(one.key, one.block).contiguous()
                file.write(found.view(torch.uint8).reshape(-1).numpy().data)
            file.flush()
            os.fsync(file.fileno())
        aside.rename(target)
    except BaseException:  # a full disk or Ctrl-C: leave no half file behind
        aside.unlink(missing_ok=True)
        raise
    sync_folder(target.parent)
    return len(wanted)


def _exported(checkpoint: Checkpoint, prefix: str) -> Iterator[Exported]:
    for key, entry in checkpoint.manifest.tensors.items():
        if key.startswith(prefix):
            yield from _parts(key, key.removeprefix(prefix), entry)


def _parts(key: str, name: str, entry: TensorEntry) -> Iterator[Exported]:
    shape = entry.shape
    before, found, after = name.partition(LAYERS)
    if not found or after[:1].isdecimal():
        whole = Block((0,) * len(shape), shape)
        yield Exported(name, key, entry.dtype, whole, shape)
        return
    rest = (0,) * (len(shape) - 1)
    for layer in range(shape[0]):
        block = Block((layer, *rest), (1, *shape[1:]))
        own = f"{before}{LAYERS}{layer}.{after}"
        yield Exported(own, key, entry.dtype, block, shape[1:])


def _header(checkpoint: Checkpoint, wanted: list[Exported]) -> bytes:
    manifest, position = checkpoint.manifest, 0
    told = {"step": str(manifest.step), "samples": str(manifest.samples)}
    header: dict[str, object] = {"__metadata__": {"format": "pt", **told}}
    for one in wanted:
        header[one.name] = {
            "dtype": NAMES[one.dtype],
            "shape": list(one.shape),
            "data_offsets": [position, position + one.nbytes],
        }
        position += one.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the bytes of the tensors begin aligned
    return len(text).to_bytes(8, "little") + text
