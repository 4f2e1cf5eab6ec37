"""Where a job's run is in the Aim UI; nothing here needs Aim."""

from __future__ import annotations

import hashlib

HASH_LENGTH = 24  # hexadecimal digits: the length of Aim's own run hashes


def aim_run_hash(job: str) -> str:
    """Return the hash of a job's run: a function of the job's id alone.

    So the address of a run is known before it exists, and is the same after its
    repository was made anew from the run folders.
    """
    return hashlib.sha256(f"hpcplat:{job}".encode()).hexdigest()[:HASH_LENGTH]


def aim_path(job: str, base: str = "/aim") -> str:
    """Return the path of the run's page of metrics, under the UI's ``base``."""
    return f"{base}/runs/{aim_run_hash(job)}/metrics"
