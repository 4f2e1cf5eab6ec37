"""A run as one file: its lineage and its metrics, as JSON or CSV."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

from hpcplat.tracking.curves import Curve, Point, history
from hpcplat.tracking.lineage import lineage

FIELDS = ("name", "source", "step", "value", "time", "attempt", "superseded")


def as_json_text(folder: Path) -> str:
    """Return the lineage and all curves; what is not finite is a string."""
    found = history(folder, sources=())
    curves = [
        {
            "name": curve.name,
            "source": curve.source,
            "points": [_plain(point) for point in curve.points],
            "superseded": [_plain(point) for point in curve.superseded],
        }
        for curve in found.curves
    ]
    whole = {
        "lineage": lineage(folder),
        "curves": curves,
        "failures": [failure._asdict() for failure in found.failures],
        "starts": [start._asdict() for start in found.starts],
        "values_lost": found.lost,
        "lines_damaged": found.damaged,
    }
    return json.dumps(whole, ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def as_csv(folder: Path) -> str:
    """Return a row a point, of all sources; superseded points are marked."""
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(FIELDS)
    for curve in history(folder, sources=()).curves:
        writer.writerows(_row(curve, point, False) for point in curve.points)
        writer.writerows(_row(curve, point, True) for point in curve.superseded)
    return file.getvalue()


def _plain(point: Point) -> dict[str, Any]:
    value = point.value if math.isfinite(point.value) else str(point.value)
    return {**point._asdict(), "value": value}


def _row(curve: Curve, point: Point, superseded: bool) -> tuple[Any, ...]:
    step, value, time, attempt = point
    return curve.name, curve.source, step, value, time, attempt, int(superseded)
