"""What a job ran in: Python, its packages, the GPUs, the machine, Slurm's ids."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from hpcplat.errors import UnavailableError
from hpcplat.processes import run

SECONDS: Final = 60.0
# Ours <- Slurm's environment names (sbatch(1), "OUTPUT ENVIRONMENT VARIABLES").
SLURM: Final[Mapping[str, str]] = {
    "job_id": "SLURM_JOB_ID",
    "cluster": "SLURM_CLUSTER_NAME",
    "account": "SLURM_JOB_ACCOUNT",
    "partition": "SLURM_JOB_PARTITION",
    "qos": "SLURM_JOB_QOS",
    "user": "SLURM_JOB_USER",
    "nodes": "SLURM_JOB_NODELIST",
    "array_job_id": "SLURM_ARRAY_JOB_ID",
    "array_task": "SLURM_ARRAY_TASK_ID",
    "restarts": "SLURM_RESTART_COUNT",
}
_PYTHON: Final = """
import json, platform, sys
from importlib.metadata import distributions
packages = {d.metadata["Name"]: d.version for d in distributions() if d.metadata["Name"]}
print(json.dumps({"executable": sys.executable, "version": platform.python_version(),
                  "packages": packages}))
"""
_ROOT: Final = Path("/")  # no module of the current folder may come first
_GPU: Final = ("name", "driver_version", "uuid", "memory.total")


def surroundings(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the environment of a job's programs, as plain values."""
    return {
        "python": python(environ),
        "gpus": gpus(environ),
        "machine": {"kernel": platform.release(), "system": _system()},
        "modules": [
            word for word in environ.get("LOADEDMODULES", "").split(":") if word
        ],
        "conda": environ.get("CONDA_PREFIX", ""),
        "virtual_environment": environ.get("VIRTUAL_ENV", ""),
        "container": environ.get(
            "APPTAINER_CONTAINER", environ.get("SINGULARITY_CONTAINER", "")
        ),
    }


def slurm_ids(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what Slurm calls this job and its place."""
    return {ours: environ[name] for ours, name in SLURM.items() if name in environ}


def python(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the version and the packages of the Python that the job's PATH names."""
    for name in ("python", "python3"):
        try:
            done = run([name, "-c", _PYTHON], timeout=SECONDS, env=environ, cwd=_ROOT)
        except UnavailableError:
            continue
        if done.ok:
            found: dict[str, Any] = json.loads(done.stdout)
            return found
    return {}


def gpus(environ: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the GPUs that NVIDIA's driver shows; none where there is no driver."""
    query = f"--query-gpu={','.join(_GPU)}"
    try:
        done = run(
            ["nvidia-smi", query, "--format=csv,noheader"], timeout=SECONDS, env=environ
        )
    except UnavailableError:
        return []
    return parse_gpus(done.stdout) if done.ok else []


def parse_gpus(text: str) -> list[dict[str, str]]:
    """Read what nvidia-smi's query printed, a GPU a line."""
    rows = [[word.strip() for word in line.split(",")] for line in text.splitlines()]
    return [dict(zip(_GPU, row, strict=True)) for row in rows if len(row) == len(_GPU)]


def _system() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return platform.system()
