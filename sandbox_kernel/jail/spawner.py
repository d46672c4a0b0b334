"""The threads that start sandboxes, and the one that cleans up behind them.

One thread starts all, or a second one with another view of the file system (``show_view``).

``--die-with-parent`` (PR_SET_PDEATHSIG) is tied to the *thread* that forked: a sandbox that was started from a
short-lived thread is killed when that thread ends. So a thread that lives as long as the process starts every child.
After a fork, the child process has no such thread and makes its own when it first needs one.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import itertools
import os
import queue
import stat
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from sandbox_kernel.errors import EnforcerFailed
from sandbox_kernel.util.values import dataclass

#: The child, or what kept it from starting. A ``Future`` would import logging and its formats at every start.
_Answer = queue.SimpleQueue[subprocess.Popen[bytes] | BaseException]


@dataclass(frozen=True)
class SpawnOrder:
    """What to start. The environment is always empty, because /proc/1/environ is readable inside."""

    argv: Sequence[str]
    pass_fds: Sequence[int] = ()
    stdin: int = -1
    stdout: int = -1
    stderr: int = -1
    #: The user to start it as; None for the host's.
    uid: int | None = None
    #: Paths to show elsewhere (``show_view``); a thread with a view of its own starts the child then.
    view: Mapping[str, str] = field(default_factory=dict)


#: The orders of one thread.
_Orders = queue.SimpleQueue[tuple[SpawnOrder, _Answer]]

_lock = threading.Lock()
_threads: dict[str, _Orders] = {}


def _forget() -> None:
    """In a forked child the threads do not exist, and the lock may be held forever."""
    global _lock
    _lock = threading.Lock()
    _threads.clear()


os.register_at_fork(after_in_child=_forget)


def spawn(start: SpawnOrder) -> subprocess.Popen[bytes]:
    """Start a child from the long-lived thread and return it. Raises what ``Popen`` raises."""
    name = "sandbox-root-view" if start.view else "sandbox-spawner"
    with _lock:
        orders = _threads.get(name)
        if orders is None:
            orders = _threads[name] = queue.SimpleQueue()
            threading.Thread(target=_serve, args=(orders,), name=name, daemon=True).start()
    answer: _Answer = queue.SimpleQueue()
    orders.put((start, answer))
    child = answer.get()
    if isinstance(child, BaseException):
        raise child
    return child


def _serve(orders: _Orders) -> None:
    while True:
        start, answer = orders.get()
        try:
            if start.view:
                show_view(start.view)
            # A new process session: Ctrl+C in a terminal and ipykernel's interrupt go to the host's process group.
            child = subprocess.Popen(
                list(start.argv), env={}, cwd="/", stdin=start.stdin, stdout=start.stdout, stderr=start.stderr,
                pass_fds=tuple(start.pass_fds), start_new_session=True,
                user=start.uid, group=start.uid, extra_groups=None if start.uid is None else [],
            )  # fmt: skip
            answer.put(child)
        except BaseException as error:
            answer.put(error)


# Cleans up killed jails in the background.
#
# The kernel needs some milliseconds to take a killed jail apart: memory, mounts, namespaces. If the program reported
# its end, or left no process, the caller need not wait for that: output and files are complete, and nothing inside
# runs. The number of waiting cleanups is limited, and all of them are done before this process ends.

#: The most cleanups at once. Above this the caller cleans up itself.
MOST = 8
#: How long the exit of this process may wait for them.
_LAST_S = 10.0


class Reaper:
    """One background thread, which starts with the first cleanup. Thread-safe."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begin without work and without a thread: also in a forked child, where dying jails belong to the parent."""
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._left = 0
        self._has_thread = False

    def take(self, rest: Callable[[], None]) -> None:
        """Queue the cleanup of a jail that was killed, or do it now if the queue is full."""
        with self._changed:
            soon = self._left < MOST
            self._left += soon
            if soon and not self._has_thread:
                self._has_thread = True
                threading.Thread(target=self._serve, name="sandbox-reaper", daemon=True).start()
        if soon:
            self._work.put(rest)
        else:
            rest()

    def wait(self, timeout_s: float = _LAST_S) -> bool:
        """Wait until all cleanups are done; returns False after the timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: self._left == 0, timeout_s)

    def _serve(self) -> None:
        while True:
            # An error here has no caller to report to; the jail itself is dead.
            with contextlib.suppress(OSError):
                self._work.get()()
            with self._changed:
                self._left -= 1
                self._changed.notify_all()


_reaper = Reaper()
bury, wait_buried = _reaper.take, _reaper.wait
atexit.register(wait_buried)
os.register_at_fork(after_in_child=_reaper.begin)


# Shows sources that only root can reach to all users, in a mount namespace that belongs to one thread of this process.
#
# Host root becomes an unprivileged user before bubblewrap starts, and that user cannot reach paths below a 0700 home,
# where interpreters often are. ``root_stage.py`` solves this with an extra program for each sandbox, which costs the
# start of an interpreter. Sources that are shown unchanged (an interpreter, not files of the policy) are shown once for
# all sandboxes: a thread that lives as long as the process has a mount namespace of its own and starts bubblewrap.

#: Where sources are shown: a memory file system in the thread's own namespace.
VIEW_PLACE = "/run"

_CLONE_NEWNS = 0x20000
_MS_NOSUID, _MS_NODEV, _MS_BIND, _MS_REC, _MS_SLAVE = 2, 4, 4096, 16384, 1 << 19

_view_lock = threading.Lock()
_numbers = itertools.count()
_places: dict[tuple[str, int, int], str] = {}
_shown = threading.local()


def viewed_places(sources: list[str]) -> dict[str, str] | None:
    """Return the new path of each source; None when one cannot be shown this way. A replaced source gets a new path."""
    found: dict[str, str] = {}
    for source in sources:
        if source == VIEW_PLACE or source.startswith(f"{VIEW_PLACE}/"):
            return None
        info = os.stat(source)
        with _view_lock:
            key = (source, info.st_dev, info.st_ino)
            found[source] = _places.setdefault(key, f"{VIEW_PLACE}/{next(_numbers)}")
    return found


def show_view(sources: Mapping[str, str]) -> None:
    """Bind each source to its path in the namespace of the calling thread. Raises ``EnforcerFailed``."""
    libc = ctypes.CDLL(None, use_errno=True)
    done: set[str] | None = getattr(_shown, "places", None)
    if done is None:
        _mount_call("unshare", libc.unshare(_CLONE_NEWNS))
        _mount_call("keep mounts to ourselves", libc.mount(None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_SLAVE), None))
        flags = ctypes.c_ulong(_MS_NOSUID | _MS_NODEV)
        _mount_call(f"mount {VIEW_PLACE}", libc.mount(b"tmpfs", VIEW_PLACE.encode(), b"tmpfs", flags, b"mode=0755"))
        done = _shown.places = set()
    for source, place in sources.items():
        if place in done:
            continue
        if stat.S_ISDIR(os.stat(source).st_mode):
            os.makedirs(place, 0o755, exist_ok=True)
        else:
            os.close(os.open(place, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
        bind = ctypes.c_ulong(_MS_BIND | _MS_REC)
        _mount_call(f"show {source}", libc.mount(os.fsencode(source), place.encode(), None, bind, None))
        done.add(place)


def _mount_call(step: str, answer: int) -> None:
    if answer < 0:
        code = ctypes.get_errno()
        raise EnforcerFailed("bubblewrap", f"the walls did not come up: {step}: {os.strerror(code)}")
