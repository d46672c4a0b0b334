"""Which walls this host can have. Never nothing in silence: ``get_enforcer`` proves one, or says why there is none."""

from __future__ import annotations

import functools
import os
import sys
from dataclasses import dataclass

from sandbox_kernel.errors import EnforcerFailed, EnforcerUnavailable, InvalidRequest
from sandbox_kernel.jail import bubblewrap
from sandbox_kernel.jail.interpreter import find_python
from sandbox_kernel.jail.jail import Jail
from sandbox_kernel.jail.walls import Walls, sizes
from sandbox_kernel.limits import Limits

NAMES = ("auto", "bubblewrap", "landlock", "seatbelt", "appcontainer")


@dataclass(frozen=True)
class Enforcer:
    """Walls that were seen to stand on this host, with these very flags."""

    name: str
    version: str


@functools.lru_cache(maxsize=8)
def _prove(name: str) -> Enforcer | EnforcerUnavailable:
    """Build the real walls once; the answer holds for the life of the process."""
    try:
        if name == "bubblewrap":
            return _prove_bubblewrap()
    except EnforcerUnavailable as error:
        return error
    return EnforcerUnavailable(name, f"there is none on {sys.platform}")


def _prove_bubblewrap() -> Enforcer:
    if sys.platform != "linux":
        raise EnforcerUnavailable(bubblewrap.NAME, "it needs Linux; use a Linux machine, container or virtual machine")
    bubblewrap.find_bwrap()
    python = find_python("python3")
    walls = Walls(python.executable, python.runtime, (), *sizes(Limits(), 256), preload=())
    try:
        jail = Jail.start(walls)
        jail.wait_ready()
    except EnforcerFailed as error:
        raise EnforcerUnavailable(bubblewrap.NAME, f"{error.message}; {_userns_remedy()}") from None
    except OSError as error:
        raise EnforcerUnavailable(bubblewrap.NAME, f"it cannot be started: {error}") from None
    jail.destroy()
    return Enforcer(bubblewrap.NAME, bubblewrap.bwrap_version())


def _userns_remedy() -> str:
    """What usually stops user namespaces, looked up on this host."""
    for name, wanted in (("kernel/unprivileged_userns_clone", "1"), ("user/max_user_namespaces", None)):
        path = f"/proc/sys/{name}"
        if os.path.exists(path):
            with open(path) as file:
                value = file.read().strip()
            if value == "0":
                return f"sysctl {name.replace('/', '.')} is 0: set it to {wanted or 'a number above 0'}"
    if os.path.exists("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"):
        return "AppArmor may restrict user namespaces: see sysctl kernel.apparmor_restrict_unprivileged_userns"
    return "in a container, allow user namespaces (for example with seccomp=unconfined), or run on the host"


def get_enforcer(name: str = "auto") -> Enforcer:
    """The enforcer of this name, or the best one; ``EnforcerUnavailable`` with the reason and the remedy."""
    if name not in NAMES:
        raise InvalidRequest(f"unknown enforcer {name!r}; expected one of: {', '.join(NAMES)}, or None for no walls")
    ladder = ("bubblewrap",) if name == "auto" else (name,)
    reasons = []
    for candidate in ladder:
        found = _prove(candidate)
        if isinstance(found, Enforcer):
            return found
        if name != "auto":
            raise found
        reasons.append(f"{candidate}: {found.message}")
    raise EnforcerUnavailable("auto", "; ".join(reasons))
