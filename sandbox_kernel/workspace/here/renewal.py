"""Has the kernel forget which names of a jail's folder it has looked up: programs see the user's folder as it is now.

Overlayfs remembers for good what it found under a name in the folder below: a file that the user saves by renaming
another over it, or puts there after a program looked for it, is not seen. A remount without any change drops all names
that nobody holds open. The jail gave us the settings of its own mount (``gate/namespaces.py``); the owner of its user
namespace may do this from outside, root or not.
"""

from __future__ import annotations

import ctypes

#: The same number on every architecture.
_FSCONFIG = 431
_RECONFIGURE = 7
_libc = ctypes.CDLL(None, use_errno=True)


def forget_names(settings_fd: int) -> bool:
    """Have all looked-up names forgotten; returns whether the kernel did it."""
    if settings_fd < 0:
        return False
    done: int = _libc.syscall(_FSCONFIG, settings_fd, _RECONFIGURE, None, None, 0)
    return done == 0
