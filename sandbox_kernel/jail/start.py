"""Starts the jail that its walls ask for, and knows what must be known of a kind of jail before one is started."""

from __future__ import annotations

from sandbox_kernel.jail.bubblewrap_jail import BubblewrapJail
from sandbox_kernel.jail.jail import Jail
from sandbox_kernel.jail.meter import counts_processes
from sandbox_kernel.jail.walls import Places, Walls


def start_jail(walls: Walls) -> Jail:
    """Start a jail; returns before its walls are up (``Jail.wait_ready``)."""
    return BubblewrapJail(walls)


def places_ahead(enforcer: str | None) -> Places:
    """Where things will be in a jail that is not started yet; only ``guest`` is the same in every jail of a kind."""
    return Places()


def process_rlimit(enforcer: str | None, processes: int) -> int | None:
    """RLIMIT_NPROC for a program that may have this many processes; None where something else counts them."""
    return None if counts_processes() else processes
