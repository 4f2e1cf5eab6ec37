"""How busy a node is: processors, memory, disks, network and the job's GPUs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import psutil

from hpcplat.tracking.nvml import Gpus, GpuState

MEGA: Final = 1e6
GIGA: Final = 1e9


@dataclass(frozen=True, slots=True)
class _Totals:
    """Counters that only grow, and when they were read (monotonic seconds)."""

    time: float
    read: int
    written: int
    sent: int
    received: int


class Machine:
    """Reads a node's state; rates are since the reading before.

    ``gpus`` are the driver's numbers of the job's own GPUs; None: all that are seen.
    ``found``: those of this machine, if somebody has looked already.
    """

    def __init__(
        self, gpus: tuple[int, ...] | None = None, found: Gpus | None = None
    ) -> None:
        self._gpus = Gpus() if found is None else found
        # Where the job's cgroup hides the others, they are numbered from 0 anew.
        hidden = gpus is not None and len(self._gpus) <= len(gpus)
        self._chosen = None if hidden else gpus
        self._before = _totals()
        psutil.cpu_percent()  # the first call only begins to count

    def read(self) -> dict[str, float]:
        """Return metrics by name: percent, gigabytes, megabytes a second, watts."""
        before, now = self._before, _totals()
        self._before = now
        seconds = max(now.time - before.time, 1e-3)
        memory = psutil.virtual_memory()
        found = {
            "system/cpu_percent": psutil.cpu_percent(),
            "system/memory_percent": memory.percent,
            "system/memory_used_gb": memory.used / GIGA,
            "system/disk_read_mb_s": (now.read - before.read) / seconds / MEGA,
            "system/disk_write_mb_s": (now.written - before.written) / seconds / MEGA,
            "system/network_sent_mb_s": (now.sent - before.sent) / seconds / MEGA,
            "system/network_received_mb_s": (now.received - before.received)
            / seconds
            / MEGA,
        }
        for state in self._gpus.states(self._chosen):
            found.update(_gpu_metrics(state))
        return found


def own_gpus(environ: Mapping[str, str]) -> tuple[int, ...] | None:
    """Return the GPUs that Slurm gave the step or the job; None if it does not say."""
    words = environ.get("SLURM_STEP_GPUS") or environ.get("SLURM_JOB_GPUS", "")
    numbers = [word for word in words.split(",") if word.isdecimal()]
    return tuple(map(int, numbers)) or None


def _gpu_metrics(state: GpuState) -> dict[str, float]:
    prefix = f"system/gpu{state.number}"
    found = {
        f"{prefix}_percent": state.utilization,
        f"{prefix}_power_w": state.power,
        f"{prefix}_temperature_c": state.temperature,
    }
    if state.memory_used is not None:
        found[f"{prefix}_memory_gb"] = state.memory_used / GIGA
    return {name: float(value) for name, value in found.items() if value is not None}


def _totals() -> _Totals:
    disk = psutil.disk_io_counters()
    network = psutil.net_io_counters()
    return _Totals(
        time.monotonic(),
        disk.read_bytes if disk else 0,
        disk.write_bytes if disk else 0,
        network.bytes_sent if network else 0,
        network.bytes_recv if network else 0,
    )
