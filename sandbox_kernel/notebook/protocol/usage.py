"""Answers ``usage_request``: how much CPU and memory the kernel and its sandboxes take, for pages that show it."""

from __future__ import annotations

import os
import socket
from typing import Any


class UsageMeter:
    """Remembers processes between two questions: CPU is measured from one to the next."""

    def __init__(self) -> None:
        self._known: dict[int, Any] = {}

    def reply(self) -> dict[str, object]:
        """Return the content of the reply."""
        import psutil

        own = psutil.Process()
        everyone = [own, *own.children(recursive=True)]
        self._known = {process.pid: self._known.get(process.pid, process) for process in everyone}
        cpu, memory = 0.0, 0
        for process in self._known.values():
            try:
                cpu += process.cpu_percent()
                memory += process.memory_full_info().pss
            except psutil.Error:
                continue  # it has ended meanwhile, or is not ours to look into
        found: dict[str, object] = {
            "hostname": socket.gethostname(),
            "pid": os.getpid(),
            "kernel_cpu": cpu,
            "kernel_memory": memory,
            "cpu_count": psutil.cpu_count(logical=True),
            "host_virtual_memory": dict(psutil.virtual_memory()._asdict()),
        }
        if host := psutil.cpu_percent():
            found["host_cpu_percent"] = host  # the first measurement has no beginning, and says 0
        return found
