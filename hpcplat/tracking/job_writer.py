"""The writer of the process that asks: its run folder, rank and attempt, if in a job."""

from __future__ import annotations

from hpcplat.allocation import rank_placement
from hpcplat.errors import NotFoundError
from hpcplat.tracking.layout import MAIN
from hpcplat.tracking.writer import MetricsWriter


def writer_of_job(*, every_rank: bool = False) -> MetricsWriter | None:
    """Return a writer for this rank; None outside of an hpcplat job.

    Rank 0 writes the run's own curves. Other ranks get None, or with ``every_rank`` a
    writer whose values are kept by rank.
    """
    try:
        place = rank_placement()
    except NotFoundError:
        return None
    if place.rank and not every_rank:
        return None
    source = f"rank-{place.rank}" if every_rank else MAIN
    folder = place.run_folder.root
    return MetricsWriter(folder, place.rank, place.attempt, source=source)
