"""Texts, histograms, images and figures as Aim's objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aim
from aim.storage.object import CustomObject
from aim.storage.types import BLOB

from hpcplat.tracking.record import Histogram, Media, Text


def aim_object(record: Text | Histogram | Media, media: Path) -> Any:  # noqa: ANN401 - Aim's
    """Return Aim's object; OSError if an image's file in ``media`` cannot be read."""
    if isinstance(record, Text):
        return aim.Text(record.text.encode(errors="replace").decode())
    if isinstance(record, Histogram):
        return aim.Distribution(
            hist=list(record.counts), bin_range=(record.low, record.high)
        )
    path = media / Path(record.file).name  # a name, never a way out of the folder
    if record.media_type == "application/vnd.plotly+json":
        return _figure(path.read_text())
    return aim.Image(str(path), caption=record.caption)


def _figure(content: str) -> Any:  # noqa: ANN401
    """Return a figure as Aim stores it, without plotly: it takes only its objects."""
    figure = aim.Figure.__new__(aim.Figure)
    CustomObject.__init__(figure)
    figure.storage["source"] = "plotly"
    figure.storage["version"] = "unknown"
    figure.storage["format"] = "raw_json"
    figure.storage["data"] = BLOB(data=content)
    return figure
