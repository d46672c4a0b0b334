"""Waiting for one descriptor, of any number: ``select`` knows only the first thousand, and a host may hold more."""

from __future__ import annotations

import select


def readable(fd: int, timeout_s: float) -> bool:
    """Whether something can be read, or has ended, within this time."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(max(0.0, timeout_s) * 1000))
