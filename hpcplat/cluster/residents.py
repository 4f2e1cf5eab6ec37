"""The services that this user's commands keep warm for a cluster."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

import psutil

MODULE: Final = "hpcplat.cli.resident"  # as it stands on their command line
GRACE: Final = 3.0  # seconds; one whose Slurm is gone already takes minutes to end


def end_residents(slurm_conf: Path) -> None:
    """End those for the cluster of this ``slurm.conf``, before it is taken down."""
    ending = [one for one in psutil.process_iter() if _is_resident(one, slurm_conf)]
    for process in ending:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
    _, living = psutil.wait_procs(ending, timeout=GRACE)
    for process in living:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def _is_resident(process: psutil.Process, slurm_conf: Path) -> bool:
    try:
        return (
            process.uids().effective == os.geteuid()
            and MODULE in process.cmdline()
            and process.environ().get("SLURM_CONF") == str(slurm_conf)
        )
    except psutil.Error:  # it has ended, or hides itself
        return False
