"""Starts a jail for given walls, and answers questions about a kind of jail before one is started."""

from __future__ import annotations

from sandbox_kernel.errors import EnforcerFailed
from sandbox_kernel.jail.core.guest_programs import guest_folder
from sandbox_kernel.jail.core.jail import Jail
from sandbox_kernel.jail.core.walls import Places, Walls
from sandbox_kernel.jail.kinds.bubblewrap_jail import BubblewrapJail
from sandbox_kernel.jail.meter.meter import counts_processes
from sandbox_kernel.jail.root.sandbox_user import has_own_user
from sandbox_kernel.jail.rules import bubblewrap


def start_jail(walls: Walls) -> Jail:
    """Start a jail. Returns before its walls are up; call ``Jail.wait_ready``.

    Raises ``EnforcerFailed`` when the host lacks something now: descriptors, memory, the enforcer's program.
    """
    try:
        if walls.enforcer == bubblewrap.NAME:
            return BubblewrapJail(walls)
        from sandbox_kernel.jail.kinds.open_jail import OpenJail  # few hosts need it

        return OpenJail(walls)
    except OSError as error:
        raise EnforcerFailed(walls.enforcer or "none", f"no sandbox can be started now: {error}") from None


def places_ahead(enforcer: str | None) -> Places:
    """Return the paths in a jail that is not started yet. Of these only ``guest`` is reliable for every kind."""
    return Places() if enforcer == bubblewrap.NAME else Places(guest=guest_folder())


def has_own_disk(enforcer: str | None) -> bool:
    """Whether the work folder is its own file system with a size limit of the kernel."""
    return enforcer == bubblewrap.NAME


def process_rlimit(enforcer: str | None, processes: int) -> int | None:
    """Return RLIMIT_NPROC for this many processes; None where it would also count processes outside the sandbox.

    The kernel counts processes for each user. That is exact in a user namespace, and for a user that no other sandbox
    has. Elsewhere a control group or the watchdog counts.
    """
    if counts_processes():
        return None
    return processes if enforcer == bubblewrap.NAME or has_own_user(enforcer) else None
