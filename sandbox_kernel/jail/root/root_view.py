"""Shows sources that only root can reach to all users, in a mount namespace that belongs to one thread of this process.

Host root becomes an unprivileged user before bubblewrap starts, and that user cannot reach paths below a 0700 home,
where interpreters often are. ``root_stage.py`` solves this with an extra program for each sandbox, which costs the
start of an interpreter. Sources that are shown unchanged (an interpreter, not files of the policy) can instead be shown
once for all sandboxes. A mount namespace belongs to a thread, so a thread that lives as long as the process gets its
own one, binds each source there at its first use, and starts bubblewrap from there. Other threads are not affected.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import stat
import threading
from collections.abc import Mapping

from sandbox_kernel.errors import EnforcerFailed

#: Where sources are shown: a memory file system in the thread's own namespace.
PLACE = "/run"
#: The name of the thread, for ``spawner.SpawnOrder``.
THREAD = "sandbox-root-view"

_CLONE_NEWNS = 0x20000
_MS_NOSUID, _MS_NODEV, _MS_BIND, _MS_REC, _MS_SLAVE = 2, 4, 4096, 16384, 1 << 19

_lock = threading.Lock()
_numbers = itertools.count()
_places: dict[tuple[str, int, int], str] = {}
_shown = threading.local()


def places(sources: list[str]) -> dict[str, str] | None:
    """Return the new path of each source; None when one cannot be shown this way. A replaced source gets a new path."""
    found: dict[str, str] = {}
    for source in sources:
        if source == PLACE or source.startswith(f"{PLACE}/"):
            return None
        info = os.stat(source)
        with _lock:
            key = (source, info.st_dev, info.st_ino)
            found[source] = _places.setdefault(key, f"{PLACE}/{next(_numbers)}")
    return found


def show(sources: Mapping[str, str]) -> None:
    """Bind each source to its path in the namespace of the calling thread. Raises ``EnforcerFailed``."""
    libc = ctypes.CDLL(None, use_errno=True)
    done: set[str] | None = getattr(_shown, "places", None)
    if done is None:
        _call("unshare", libc.unshare(_CLONE_NEWNS))
        _call("keep mounts to ourselves", libc.mount(None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_SLAVE), None))
        flags = ctypes.c_ulong(_MS_NOSUID | _MS_NODEV)
        _call(f"mount {PLACE}", libc.mount(b"tmpfs", PLACE.encode(), b"tmpfs", flags, b"mode=0755"))
        done = _shown.places = set()
    for source, place in sources.items():
        if place in done:
            continue
        if stat.S_ISDIR(os.stat(source).st_mode):
            os.makedirs(place, 0o755, exist_ok=True)
        else:
            os.close(os.open(place, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
        bind = ctypes.c_ulong(_MS_BIND | _MS_REC)
        _call(f"show {source}", libc.mount(os.fsencode(source), place.encode(), None, bind, None))
        done.add(place)


def _call(step: str, answer: int) -> None:
    if answer < 0:
        code = ctypes.get_errno()
        raise EnforcerFailed("bubblewrap", f"the walls did not come up: {step}: {os.strerror(code)}")
