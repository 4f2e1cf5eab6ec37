"""Which implementation serves a cluster: pyslurm where it fits, else the commands."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcplat.slurm.commandline import CommandLine
from hpcplat.slurm.pyslurm_reads import PyslurmReads
from hpcplat.slurm.scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class Offer:
    """The pyslurm module, or why it is not used."""

    module: Any | None
    why_not: str = ""


def open_scheduler(
    conf: Path | None = None,
    *,
    environ: Mapping[str, str],
    programs: Path | None = None,
    timeout: float = 20,
) -> Scheduler:
    """Return the quickest scheduler that fits the cluster.

    Raises UnavailableError when Slurm's commands are missing or don't answer.
    """
    lines = CommandLine(conf, environ=environ, programs=programs, timeout=timeout)
    offer = load_pyslurm(lines, conf)
    if offer.module is None:
        return lines
    return PyslurmReads(
        conf,
        environ=environ,
        pyslurm=offer.module,
        programs=programs,
        timeout=timeout,
    )


def load_pyslurm(lines: CommandLine, conf: Path | None) -> Offer:
    """Import pyslurm if it is installed and fits the release and the cluster.

    libslurm holds one configuration per process and ends the process when it finds
    none, so the release is compared before anything of it is run.
    """
    if importlib.util.find_spec("pyslurm") is None:
        return Offer(None, "pyslurm is not installed")
    year, month = lines.version()
    built_for = _release_of_pyslurm()
    if built_for != f"{year}.{month}":
        return Offer(
            None, f"pyslurm is for Slurm {built_for}, this is {year}.{month:02}"
        )
    cluster = lines.config()["ClusterName"]
    module = importlib.import_module("pyslurm")
    if not hasattr(module.Job, "allocated_tres"):
        return Offer(None, "pyslurm before 25.11.1 does not tell a job's GPUs")
    if module.settings.LOCAL_CLUSTER == "UNKNOWN":
        module.slurm_init(None if conf is None else str(conf))
    if cluster != module.settings.LOCAL_CLUSTER:
        return Offer(
            None, f"pyslurm serves {module.settings.LOCAL_CLUSTER} in this process"
        )
    return Offer(module)


def _release_of_pyslurm() -> str:
    """Return ``25.11`` from the distribution's version 25.11.2."""
    version = importlib.metadata.version("pyslurm")
    return ".".join(version.split(".")[:2])
