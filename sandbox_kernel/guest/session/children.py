"""Replacements for ``os.wait``, ``waitpid``, ``wait3`` and ``wait4`` that hide the worker's checkpoints.

A checkpoint is a child of the worker. A program that waits for *any* child would wait for checkpoints too, and these
do not end. Waiting for one pid is not changed.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, List, Tuple

_waitid, _waitpid, _wait4 = os.waitid, os.waitpid, os.wait4


def hide(checkpoints: Callable[[], List[int]]) -> None:
    """Replace the functions that wait for any child. ``checkpoints`` returns the pids that they must not return."""

    def only_checkpoints_left() -> bool:
        hidden = set(checkpoints())
        for thread in os.listdir("/proc/self/task"):
            try:
                with open(f"/proc/self/task/{thread}/children") as file:
                    if any(int(pid) not in hidden for pid in file.read().split()):
                        return False
            except OSError:
                continue
        return True

    def next_child(options: int) -> int:
        """Return the pid of a child that has ended; 0 when none has and ``options`` holds ``WNOHANG``."""
        while True:
            if only_checkpoints_left():
                raise ChildProcessError(10, "No child processes")
            found = _waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | (options & os.WNOHANG))
            if found is None:
                return 0
            if found.si_pid not in checkpoints():
                return found.si_pid
            # The host dropped this checkpoint, so reap it here.
            _waitpid(found.si_pid, os.WNOHANG)

    def waitpid(pid: int, options: int, /) -> Tuple[int, int]:
        if pid != -1 or options & ~os.WNOHANG or not checkpoints():
            return _waitpid(pid, options)
        child = next_child(options)
        return _waitpid(child, 0) if child else (0, 0)

    def wait() -> Tuple[int, int]:
        return waitpid(-1, 0)

    def wait4(pid: int, options: int) -> Tuple[int, int, Any]:
        if pid != -1 or options & ~os.WNOHANG or not checkpoints():
            return _wait4(pid, options)
        return _wait4(next_child(options) or -1, os.WNOHANG)

    def wait3(options: int) -> Tuple[int, int, Any]:
        return wait4(-1, options)

    for function in (waitpid, wait, wait4, wait3):
        function.__doc__ = getattr(os, function.__name__).__doc__
        function.__module__ = "posix"
        setattr(os, function.__name__, function)
