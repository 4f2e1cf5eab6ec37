"""NVIDIA's management library, as far as GPU metrics need it, by ctypes.

Functions and structures are those of the NVML API reference ("Device Queries").
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Final, NamedTuple

_LIBRARY: Final = "libnvidia-ml.so.1"
_TEMPERATURE_GPU: Final = 0


class GpuState(NamedTuple):
    """One GPU now: percent, bytes, watts, degrees Celsius; None: it doesn't say."""

    number: int
    utilization: float | None
    memory_used: int | None
    memory_total: int | None
    power: float | None
    temperature: int | None


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


class Gpus:
    """The GPUs of this machine; none where there is no driver."""

    def __init__(self, library: str = _LIBRARY) -> None:
        self._handles: dict[int, ctypes.c_void_p] = {}
        self._count = 0
        try:
            self._nvml = ctypes.CDLL(library)
            self._find()
        except (OSError, AttributeError):
            # No driver, or one so old that it lacks these functions: nothing is told.
            self._handles.clear()

    def _find(self) -> None:
        nvml, count = self._nvml, ctypes.c_uint()
        if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)):
            return
        self._count = count.value
        for index in range(self._count):
            handle = ctypes.c_void_p()
            found = ctypes.byref(handle)
            if not nvml.nvmlDeviceGetHandleByIndex_v2(index, found):
                self._handles[index] = handle

    def __len__(self) -> int:
        """Return how many the driver counts, those that can't be asked included."""
        return self._count

    def states(self, chosen: Iterable[int] | None = None) -> list[GpuState]:
        """Return the state of the ``chosen`` GPUs, by the driver's index."""
        indexes = range(self._count) if chosen is None else chosen
        return [self._state(index) for index in indexes if index in self._handles]

    def _state(self, index: int) -> GpuState:
        handle = self._handles[index]
        use, memory = _Utilization(), _Memory()
        power, temperature = ctypes.c_uint(), ctypes.c_uint()
        nvml = self._nvml
        # Each call returns 0 when it worked.
        used = not nvml.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(use))
        sized = not nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
        powered = not nvml.nvmlDeviceGetPowerUsage(handle, ctypes.byref(power))
        warm = not nvml.nvmlDeviceGetTemperature(
            handle, _TEMPERATURE_GPU, ctypes.byref(temperature)
        )
        return GpuState(
            index,
            use.gpu if used else None,
            memory.used if sized else None,
            memory.total if sized else None,
            power.value / 1000 if powered else None,
            temperature.value if warm else None,
        )
