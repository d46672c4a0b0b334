"""Starts the jail that its walls ask for."""

from __future__ import annotations

from sandbox_kernel.jail.bubblewrap_jail import BubblewrapJail
from sandbox_kernel.jail.jail import Jail
from sandbox_kernel.jail.walls import Walls


def start_jail(walls: Walls) -> Jail:
    """Start a jail; returns before its walls are up (``Jail.wait_ready``)."""
    return BubblewrapJail(walls)
