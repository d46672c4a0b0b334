"""The host user of a sandbox, and the stage that a host running as root needs before bubblewrap.

``guest/root/root_stage.py`` carries the stage out.
"""

from __future__ import annotations

import functools
import marshal
import os
import stat
from collections.abc import Mapping, Sequence

#: Where the stage shows the sources.
PLACE = "/run"

#: Unprivileged ids that no account uses. Each sandbox of root gets its own, so that none can signal another.
_FIRST_UID, _UID_COUNT = 0x77000000, 1 << 20


def random_below(count: int) -> int:
    """Return a number from 0 to ``count`` - 1 that nobody can foresee; ``secrets`` takes milliseconds to import."""
    return int.from_bytes(os.urandom(16), "big") % count


def is_closed(path: str) -> bool:
    """Whether other users cannot read the path itself, as with files that root makes with a umask of 077 or 027."""
    mode = os.stat(path).st_mode
    wanted = 0o005 if stat.S_ISDIR(mode) else 0o004
    return mode & wanted != wanted


def reachable_by_all(path: str) -> bool:
    """Whether any unprivileged user can reach and read this path."""
    try:
        if is_closed(path):
            return False
        while path != "/":
            path = os.path.dirname(path)
            if not os.stat(path).st_mode & 0o001:
                return False
    except OSError:
        return False
    return True


def package_of(bwrap: str) -> str | None:
    """Return the folder of a bwrap from a registry package, with its library; None for any other bwrap."""
    if os.path.basename(os.path.dirname(bwrap)) != "_bin":
        return None
    return os.path.dirname(os.path.dirname(os.path.dirname(bwrap)))


def plan_stage(
    uid: int,
    shared: Sequence[str],
    granted: Sequence[str],
    bwrap: str,
    args_fd: int,
    *,
    closed: frozenset[str] = frozenset(),
    alone: frozenset[str] = frozenset(),
    identities: Mapping[str, tuple[int, int] | None] | None = None,
) -> tuple[bytes, dict[str, str]]:
    """Return the plan of a stage that becomes ``uid`` and executes bwrap, and the new path of each source.

    ``args_fd`` has the arguments of bwrap.
    ``shared`` sources are shown as they are, ``granted`` ones with root's ids mapped to ``uid``, and so are those that
    other users cannot read (``closed``). Those ``alone`` are shown without the file systems that are mounted below
    them: a layer cannot lie over those. ``identities`` are device and inode that sources must have.
    """
    sources: dict[str, str] = {}
    binds: list[tuple[str, str, bool, bool]] = []
    for mapped, paths in ((True, granted), (False, shared)):
        for path in paths:
            if path not in sources:
                sources[path] = f"{PLACE}/{len(sources)}"
                binds.append((path, sources[path], mapped or path in closed, path not in alone))
    program = bwrap
    package = package_of(bwrap)
    if package is not None:
        binds.append((package, f"{PLACE}/bwrap", package in closed, True))
        program = f"{PLACE}/bwrap{bwrap.removeprefix(package)}"
    plan = {"uid": uid, "binds": binds, "argv": [program, "--args", str(args_fd)], "identities": dict(identities or {})}
    return marshal.dumps(plan, 2), sources


# Chooses the host user of a sandbox: its own user if the host is root and may choose one, else the host's user.

CAP_SETPCAP = 8
#: Ids below this belong to accounts, or may soon.
_FIRST_FREE = 0x8000
#: CAP_CHOWN, CAP_KILL, CAP_SETGID and CAP_SETUID: needed to give files to another user, become it, and kill it.
_NEEDED = frozenset({0, 5, 6, 7})


def has_own_user(enforcer: str | None) -> bool:
    """Whether sandboxes behind this enforcer get their own user; without walls a program runs as the host's user."""
    return enforcer is not None and os.geteuid() == 0 and _free_ids() is not None


def own_user(enforcer: str | None) -> int | None:
    """Return an unprivileged id that no account and no other sandbox has; None to keep the host's user."""
    free = _free_ids()
    if not has_own_user(enforcer) or free is None:
        return None
    first, last = free
    uid = _FIRST_UID + random_below(_UID_COUNT)
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
    with open(path) as file:
        rows = [[int(word) for word in line.split()] for line in file]
    inner, _, count = max(rows, key=lambda row: row[2], default=(0, 0, 1))
    return inner, inner + count - 1
