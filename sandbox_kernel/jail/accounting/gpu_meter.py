"""Counts the memory that one sandbox holds on accelerators, by the driver's own list of processes (NVIDIA's NVML).

The driver limits nothing, so the watch loop compares the count at its ticks: a program can exceed its limit for the
time between two counts. The package ``nvidia-ml-py`` is imported only for a sandbox that may use a GPU.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection

from sandbox_kernel.errors import EnforcerUnavailable, InvalidRequest, install_line
from sandbox_kernel.jail.proof_record import read_link
from sandbox_kernel.limits import MIB
from sandbox_kernel.policy.gpu import GpuRule

#: How often the driver is asked; a question takes about a millisecond.
_EVERY_S = 0.05
#: The pid namespace of the machine itself has this number on every Linux. The driver counts by its pids.
_MACHINE_PIDS = "pid:[4026531836]"


class GpuMeter:
    """Counts one sandbox that may use a GPU, at every tick (``exceeded``); ``peak_bytes`` is the most that was seen."""

    def __init__(self, members: Callable[[], Collection[int]], limit_mb: int | None) -> None:
        self._members, self._limit_mb, self._counts = members, limit_mb, open_counts()
        self._next = 0.0
        self.peak_bytes: int | None = None

    def exceeded(self) -> bool:
        """Whether the sandbox holds more than its limit. Asks the driver from time to time."""
        now = time.monotonic()
        if isinstance(self._counts, str) or now < self._next:
            return False
        self._next = now + _EVERY_S
        held = self._counts.by_process()
        used = sum(held[pid] for pid in self._members() if pid in held) if held else 0
        self.peak_bytes = max(self.peak_bytes or 0, used)
        return self._limit_mb is not None and used > self._limit_mb * MIB


class Nvml:
    """NVIDIA's management library, opened once for this process."""

    def __init__(self) -> None:
        import pynvml

        pynvml.nvmlInit()
        self._nvml = pynvml
        self._cards = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]

    def by_process(self) -> dict[int, int]:
        """Return the memory on all cards, in bytes, by pid."""
        found: dict[int, int] = {}
        for card in self._cards:
            try:
                running = self._nvml.nvmlDeviceGetComputeRunningProcesses(card)
            except self._nvml.NVMLError:
                continue
            for process in running:
                found[process.pid] = found.get(process.pid, 0) + (process.usedGpuMemory or 0)
        return found


@functools.lru_cache(maxsize=1)
def open_counts() -> Nvml | str:
    """Return the driver's list, or why it cannot be read here."""
    if read_link("/proc/self/ns/pid") != _MACHINE_PIDS:
        return (
            "the driver counts by the machine's own pids, which this container does not see (start it with --pid=host)"
        )
    try:
        return Nvml()
    except ImportError:
        return f"the package nvidia-ml-py is not installed; {install_line('gpu')}"
    except Exception as error:  # the library's own errors, whatever the driver lacks
        return f"NVIDIA's management library does not answer: {error}"


def check_gpu_limit(limit_mb: int | None, rule: GpuRule | None) -> None:
    """Raise ``InvalidRequest`` for a limit without a GPU, ``EnforcerUnavailable`` for one that cannot be held here."""
    if limit_mb is None:
        return
    if rule is None:
        raise InvalidRequest(
            f"gpu_memory_mb={limit_mb} limits nothing: the policy allows no GPU; add --gpu, or policy.allow_gpu()"
        )
    counts = open_counts()
    if isinstance(counts, str):
        raise EnforcerUnavailable(
            "gpu_memory", f"a limit of {limit_mb} MB on the card cannot be held: {counts}; run without the limit"
        )
