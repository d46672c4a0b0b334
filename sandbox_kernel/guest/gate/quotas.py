"""A sandbox's share of what the kernel counts for each user, set in the sandbox's own user namespace.

Sandboxes of one user are that user to the kernel, so one of them could take all that the user may have: every watch of
the host's own programs would fail. A user namespace has limits of its own below those of the user. Only a process with
every right there can set them, so it is done before the gate gives its rights up.

Limits that no namespace divides are set with ``setrlimit`` (``languages/support/recipe.py``) or refused
(``jail/rules/seccomp.py``).
Runs inside, standard library only, Python 3.8 or later.
"""

from __future__ import annotations

import os
import sys

#: Below /proc/sys/user. The usual limits of a user are 128 and 8192 or more; the filter refuses the rest altogether.
SHARES = {
    "max_inotify_instances": 16,
    "max_inotify_watches": 1024,
    "max_fanotify_groups": 0,
    "max_fanotify_marks": 0,
    "max_user_namespaces": 0,
}
_CAPABILITY_VERSION_3, _PR_CAPBSET_DROP, _CAP_SETPCAP, _CAP_SYS_RESOURCE = 0x20080522, 24, 8, 24


def take_shares() -> None:
    """Set the shares; ``/proc`` must be that of our own namespaces. OSError says which one could not be set."""
    for name, most in SHARES.items():
        path = f"/proc/sys/user/{name}"
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # an older kernel counts no such thing
        try:
            os.write(fd, str(most).encode())
        finally:
            os.close(fd)


def give_up_rights() -> None:
    """Have no capability any more, and no way to get one: bubblewrap gave the gate two, to set the shares with."""
    import _ctypes

    library = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]
    prctl, capset = _ctypes.dlsym(library, "prctl"), _ctypes.dlsym(library, "capset")
    header = _CAPABILITY_VERSION_3.to_bytes(4, sys.byteorder) + bytes(4)
    calls = [(prctl, (_PR_CAPBSET_DROP, capability, 0, 0, 0)) for capability in (_CAP_SYS_RESOURCE, _CAP_SETPCAP)]
    # Effective, permitted and inheritable, for the first 32 capabilities and then for the rest; ambient ones go along.
    for function, arguments in (*calls, (capset, (header, bytes(24)))):
        if _ctypes.call_cdeclfunction(function, arguments) != 0:
            raise OSError("the gate could not give up its capabilities")
