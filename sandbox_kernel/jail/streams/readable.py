"""Waits for one descriptor of any number. ``select`` accepts only the first thousand, and a host may have more."""

from __future__ import annotations

import select


def readable(fd: int, timeout_s: float) -> bool:
    """Whether the descriptor becomes readable, or reaches its end, within this time."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(max(0.0, timeout_s) * 1000))
