"""Limits, in the sandbox's own user namespace, resources that the kernel counts for each user.

To the kernel all sandboxes of a user are that user, so one of them could use up the user's whole quota: then file
watches of the host's own programs would fail. A user namespace can have lower limits of its own. Setting them takes
capabilities in it, so the gate does it before it gives these up.

Resources that namespaces do not divide are limited with ``setrlimit`` (``languages/recipe.py``) or refused
(``jail/rules/seccomp.py``).
Runs inside the jail: standard library only, Python 3.8 or later.
"""

from __future__ import annotations

import os
import sys

#: Files in /proc/sys/user and their values. A user usually has 128 inotify instances and 8192 watches or more; the
#: syscall filter refuses the calls behind the others.
SHARES = {
    "max_inotify_instances": 16,
    "max_inotify_watches": 1024,
    "max_fanotify_groups": 0,
    "max_fanotify_marks": 0,
    "max_user_namespaces": 0,
}
_CAPABILITY_VERSION_3, _PR_CAPBSET_DROP, _CAP_SETPCAP, _CAP_SYS_RESOURCE = 0x20080522, 24, 8, 24


def take_shares() -> None:
    """Set the limits; ``/proc`` must belong to our own namespaces. Raises ``OSError`` when one cannot be set."""
    for name, most in SHARES.items():
        path = f"/proc/sys/user/{name}"
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # an older kernel does not have this limit
        try:
            os.write(fd, str(most).encode())
        finally:
            os.close(fd)


def give_up_rights() -> None:
    """Give up the two capabilities that bubblewrap gave the gate for ``take_shares``, and every way to get more."""
    import _ctypes

    library = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]
    prctl, capset = _ctypes.dlsym(library, "prctl"), _ctypes.dlsym(library, "capset")
    header = _CAPABILITY_VERSION_3.to_bytes(4, sys.byteorder) + bytes(4)
    calls = [(prctl, (_PR_CAPBSET_DROP, capability, 0, 0, 0)) for capability in (_CAP_SYS_RESOURCE, _CAP_SETPCAP)]
    # Effective, permitted and inheritable, for the first 32 capabilities and then for the rest; clears ambient ones
    # too.
    for function, arguments in (*calls, (capset, (header, bytes(24)))):
        if _ctypes.call_cdeclfunction(function, arguments) != 0:
            raise OSError("the gate could not give up its capabilities")
