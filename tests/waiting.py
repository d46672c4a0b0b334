"""Waits for what other threads and processes do. The test's own time limit ends a wait for what never comes."""

import os
import select
import time
from collections.abc import Callable


def until(holds: Callable[[], object]) -> None:
    """Return as soon as this holds; the processor is left to those who bring it about."""
    while not holds():
        time.sleep(0.002)


def until_gone(*pids: int) -> None:
    """Return when all these processes have ended, whose children they may be."""
    for pid in pids:
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            select.select([fd], [], [])
        finally:
            os.close(fd)
