"""The threads that start sandboxes: one, and a second one with another view of the file system (``root_view.py``).

``--die-with-parent`` (PR_SET_PDEATHSIG) is tied to the *thread* that forked: a sandbox that was started from a
short-lived thread is killed when that thread ends. So a thread that lives as long as the process starts every child.
After a fork, the child process has no such thread and makes its own when it first needs one.
"""

from __future__ import annotations

import os
import queue
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import field

from sandbox_kernel.ground.values import dataclass

#: The child, or what kept it from starting. A ``Future`` would import logging and its formats at every start.
_Answer = queue.SimpleQueue[subprocess.Popen[bytes] | BaseException]


@dataclass(frozen=True)
class SpawnOrder:
    """What to start. The environment is always empty, because /proc/1/environ is readable inside."""

    argv: Sequence[str]
    pass_fds: Sequence[int]
    stdin: int
    stdout: int
    stderr: int
    uid: int | None = None
    #: The name of the thread that starts it, and a function to call there first.
    thread: str = "sandbox-spawner"
    prepare: Callable[[], None] | None = None


@dataclass
class _Thread:
    orders: queue.SimpleQueue[tuple[SpawnOrder, _Answer]] = field(default_factory=queue.SimpleQueue)
    pid: int = field(default_factory=os.getpid)


_lock = threading.Lock()
_threads: dict[str, _Thread] = {}


def _forget() -> None:
    """In a forked child the threads do not exist, and the lock may be held forever."""
    global _lock, _threads
    _lock, _threads = threading.Lock(), {}


os.register_at_fork(after_in_child=_forget)


def spawn(start: SpawnOrder) -> subprocess.Popen[bytes]:
    """Start a child from the long-lived thread and return it. Raises what ``Popen`` raises."""
    with _lock:
        thread = _threads.get(start.thread)
        if thread is None:
            thread = _threads[start.thread] = _Thread()
            threading.Thread(target=_serve, args=(thread,), name=start.thread, daemon=True).start()
    answer: _Answer = queue.SimpleQueue()
    thread.orders.put((start, answer))
    child = answer.get()
    if isinstance(child, BaseException):
        raise child
    return child


def _serve(thread: _Thread) -> None:
    while True:
        start, answer = thread.orders.get()
        try:
            if start.prepare is not None:
                start.prepare()
            who: dict[str, object] = {}
            if start.uid is not None:
                who = {"user": start.uid, "group": start.uid, "extra_groups": []}
            # A new process session: Ctrl+C in a terminal and ipykernel's interrupt go to the host's process group.
            child = subprocess.Popen(
                list(start.argv), env={}, cwd="/", stdin=start.stdin, stdout=start.stdout, stderr=start.stderr,
                pass_fds=tuple(start.pass_fds), start_new_session=True, **who,
            )  # type: ignore[call-overload]  # fmt: skip
            answer.put(child)
        except BaseException as error:
            answer.put(error)
