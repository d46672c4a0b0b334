"""Chooses the host user of a sandbox: its own user if the host is root and may choose one, else the host's user."""

from __future__ import annotations

import functools
import os

from sandbox_kernel.jail.root.root_plan import fresh_uid, random_below

CAP_SETPCAP = 8
#: Ids below this belong to accounts, or may soon.
_FIRST_FREE = 0x8000
#: CAP_CHOWN, CAP_KILL, CAP_SETGID and CAP_SETUID: needed to give files to another user, become it, and kill it.
_NEEDED = frozenset({0, 5, 6, 7})


def has_own_user(enforcer: str | None) -> bool:
    """Whether sandboxes behind this enforcer get their own user.

    Without an enforcer the program runs as the host's user, with the same rights.
    """
    return enforcer is not None and os.geteuid() == 0 and _free_ids() is not None


def own_user(enforcer: str | None) -> int | None:
    """Return an unprivileged id that no account and no other sandbox has; None to keep the host's user."""
    free = _free_ids()
    if not has_own_user(enforcer) or free is None:
        return None
    first, last = free
    uid = fresh_uid()
    return uid if first <= uid <= last else first + random_below(last - first + 1)


@functools.lru_cache(maxsize=1)
def _free_ids() -> tuple[int, int] | None:
    """Return the range of free ids that exist for users and groups and that we may become. Containers may have few."""
    if not held_capabilities() >= _NEEDED:
        return None
    ranges = [_mapped(f"/proc/self/{name}") for name in ("uid_map", "gid_map")]
    first = max(low for low, _ in ranges)
    last = min(high for _, high in ranges)
    if last < 1 << 16:
        last -= 2  # nobody and nogroup
    first = max(first, _FIRST_FREE)
    return (first, last) if first < last else None


def held_capabilities() -> frozenset[int]:
    """Return the numbers of the capabilities of this process."""
    with open("/proc/self/status") as file:
        mask = next((int(line.split()[1], 16) for line in file if line.startswith("CapEff:")), 0)
    return frozenset(number for number in range(64) if mask >> number & 1)


def _mapped(path: str) -> tuple[int, int]:
    best = (0, 0)
    with open(path) as file:
        for line in file:
            inner, _, count = map(int, line.split())
            if count > best[1] - best[0]:
                best = (inner, inner + count - 1)
    return best
