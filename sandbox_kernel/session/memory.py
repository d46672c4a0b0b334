"""What the processes of a session hold, read from the host's /proc."""

from __future__ import annotations

import contextlib

from sandbox_kernel.jail.process_tree import tree
from sandbox_kernel.session.channel import inner_pid


def private_bytes(init_pid: int) -> dict[int, int]:
    """Memory that each process of a jail holds alone, by its pid inside: what its end would give back."""
    found: dict[int, int] = {}
    for pid in tree(init_pid):
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
                total = sum(int(line.split()[1]) for line in file if line.startswith(b"Private_"))
            found[inner_pid(pid)] = total << 10
    return found
