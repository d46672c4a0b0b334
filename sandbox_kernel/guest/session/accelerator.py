"""Whether this process has a context on an accelerator: a fork cannot use it, so it cannot be a checkpoint.

Runs inside the jail: standard library only, Python 3.8 or later.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Set

#: Every program for NVIDIA's or AMD's cards opens one of these.
_FILES = ("/dev/nvidiactl", "/dev/kfd")
#: Why no checkpoint is made of such a process.
REASON = "it uses a GPU, and the state of a GPU cannot be copied"
#: How many variables are named.
_MOST_NAMES = 20


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


def names_on_card(variables: Dict[str, Any]) -> List[str]:
    """Return the names of the variables that are torch's tensors, or models with tensors, on an accelerator."""
    torch: Any = sys.modules.get("torch")
    found: List[str] = []
    for name, value in variables.items() if hasattr(torch, "nn") else ():
        if isinstance(value, torch.nn.Module):
            on_card = any(part.device.type != "cpu" for part in value.parameters())
        else:
            on_card = isinstance(value, torch.Tensor) and value.device.type != "cpu"
        if on_card and len(found) < _MOST_NAMES:
            found.append(name)
    return found
