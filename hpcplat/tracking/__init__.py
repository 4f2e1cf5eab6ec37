"""Metrics of a training: written to the run folder, read from there by everyone."""

from hpcplat.tracking.values import Distribution, Image
from hpcplat.tracking.writer import MetricsWriter

__all__ = ["Distribution", "Image", "MetricsWriter"]
