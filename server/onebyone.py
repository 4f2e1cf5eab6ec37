"""Doing something for many jobs, of which one may be odd."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import OperationalError

from hpcplat.errors import HpcplatError, UnavailableError

logger = logging.getLogger("hpcplat.jobs")


@contextmanager
def apart(job: str, doing: str) -> Iterator[None]:
    """Keep what fails for one job from the others: it is logged, and they go on.

    That Slurm or the database does not answer is no matter of one job: it is raised.
    """
    try:
        yield
    except (UnavailableError, OperationalError):
        raise
    except HpcplatError as error:
        logger.warning("%s job %s: %s", doing, job, error)
    except Exception:  # whatever a person's files hold, the other jobs are looked after
        logger.exception("%s job %s failed", doing, job)
