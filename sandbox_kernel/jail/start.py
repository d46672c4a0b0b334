"""Starts the jail that its walls ask for, and knows what must be known of a kind of jail before one is started."""

from __future__ import annotations

from sandbox_kernel.errors import EnforcerFailed
from sandbox_kernel.jail.core.guest_programs import guest_folder
from sandbox_kernel.jail.core.jail import Jail
from sandbox_kernel.jail.core.walls import Places, Walls
from sandbox_kernel.jail.kinds.bubblewrap_jail import BubblewrapJail
from sandbox_kernel.jail.kinds.open_jail import OpenJail
from sandbox_kernel.jail.meter.meter import counts_processes
from sandbox_kernel.jail.root.sandbox_user import has_own_user
from sandbox_kernel.jail.rules import bubblewrap


def start_jail(walls: Walls) -> Jail:
    """Start a jail; returns before its walls are up (``Jail.wait_ready``).

    What the host lacks at this moment (descriptors, memory, the enforcer's own program) is a typed error too.
    """
    try:
        return BubblewrapJail(walls) if walls.enforcer == bubblewrap.NAME else OpenJail(walls)
    except OSError as error:
        raise EnforcerFailed(walls.enforcer or "none", f"no sandbox can be started now: {error}") from None


def places_ahead(enforcer: str | None) -> Places:
    """Where things will be in a jail that is not started yet; only ``guest`` is the same in every jail of a kind."""
    return Places() if enforcer == bubblewrap.NAME else Places(guest=guest_folder())


def has_own_disk(enforcer: str | None) -> bool:
    """Whether the work folder is a file system of its own, whose size the kernel limits."""
    return enforcer == bubblewrap.NAME


def process_rlimit(enforcer: str | None, processes: int) -> int | None:
    """RLIMIT_NPROC for a program that may have this many processes; None where it would count others' too.

    It counts by user: exact in a user namespace of its own, and for a user that only this sandbox is. Elsewhere a
    control group or the watchdog counts.
    """
    if counts_processes():
        return None
    return processes if enforcer == bubblewrap.NAME or has_own_user(enforcer) else None
