"""What is written down about a call of sbatch, before and after it."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any, Final

from hpcplat.dropin.call import Call
from hpcplat.dropin.passage import Accepted

LARGEST_SCRIPT: Final = 64 * 1024  # bytes kept; a job's tracking needs no more


def opening(call: Call, key: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the record of a call that is about to run, as JSON values."""
    script = (call.script or b"")[:LARGEST_SCRIPT].decode(errors="replace")
    return {
        "version": 1,
        "key": key,
        "words": list(call.words),
        "script": script,
        "environment": {
            name: value
            for name, value in environment.items()
            if name.startswith("SBATCH_") or name in {"SLURM_CLUSTERS", "SLURM_HINT"}
        },
        "folder": os.getcwd(),  # noqa: PTH109 - as the shell says it
        "created_at": time.time(),
    }


def closing(status: int | None, accepted: Accepted | None) -> dict[str, Any]:
    """Return how the call went; ``status`` is None while sbatch (--wait) still runs."""
    return {
        "status": status,
        "job_id": accepted.job_id if accepted else None,
        "cluster": accepted.cluster if accepted else "",
        "ended_at": time.time(),
    }
