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

    def __init__(self) -> None:
        self._handles: list[ctypes.c_void_p] = []
        try:
            self._nvml = ctypes.CDLL(_LIBRARY)
        except OSError:
            return
        count = ctypes.c_uint()
        if self._nvml.nvmlInit_v2() or self._nvml.nvmlDeviceGetCount_v2(
            ctypes.byref(count)
        ):
            return
        for index in range(count.value):
            handle = ctypes.c_void_p()
            found = ctypes.byref(handle)
            if not self._nvml.nvmlDeviceGetHandleByIndex_v2(index, found):
                self._handles.append(handle)

    def __len__(self) -> int:
        return len(self._handles)

    def states(self, chosen: Iterable[int] | None = None) -> list[GpuState]:
        """Return the state of the ``chosen`` GPUs, by the driver's index."""
        indexes = range(len(self._handles)) if chosen is None else chosen
        return [self._state(index) for index in indexes if index < len(self._handles)]

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
