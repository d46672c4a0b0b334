"""Whether this process has a context on an accelerator: a fork cannot use it, so it cannot be a checkpoint.

Runs inside the jail: standard library only, Python 3.8 or later.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Set

#: Every program for NVIDIA's or AMD's cards opens one of these.
_FILES = ("/dev/nvidiactl", "/dev/kfd")
#: Why no checkpoint is made of such a process.
REASON = "it uses a GPU, and the state of a GPU cannot be copied"


def _numbers() -> Set[int]:
    found = set()
    for path in _FILES:
        try:
            found.add(os.stat(path).st_rdev)
        except OSError:
            continue
    return found


_DEVICES = _numbers()


def in_use() -> bool:
    """Whether a device file of an accelerator is open. Costs nothing in a jail without one."""
    if not _DEVICES:
        return False
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.fstat(int(name)).st_rdev in _DEVICES:
                return True
        except OSError:
            continue
    return False
