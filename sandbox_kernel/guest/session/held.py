"""Checkpoints as the gate holds them: by a pidfd, which always means the same process.

A pid alone is not enough: the kernel may reuse it as soon as the parent reaps the process, and the parent of a
checkpoint is the worker, which is hostile. Standard library only, Python 3.8 or later.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time

from ..gate import lockdown
from ..gate.alive import descendants, last_pid, look, read_short, seen_below

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Sequence


#: The signal that wakes a checkpoint. A checkpoint checks that the gate sent it. This cannot be a real-time signal:
#: when a user has too many signals queued, the kernel drops the sender of those.
WAKE = signal.SIGUSR2
#: The signals that make a checkpoint look at its variables: in a fork; in itself, which ends it.
LOOK, LAST_LOOK = signal.SIGUSR1, signal.SIGHUP
#: Descriptors from this number on cannot be given to ``select``.
MOST_WAITED_FOR = 1000
#: How long to wait before a process is looked at again.
ASK_AGAIN_S = 0.0002
#: How often a process that was killed is looked at without a pause between.
LOOKS_AT_ONCE = 20
_PF_EXITING = 4


class Refused(Exception):
    """Raised when a process cannot be the checkpoint that the worker says it is; the message says why."""


class Held:
    """One checkpoint, held by its descriptor. ``close`` closes the descriptor and does not end the process.

    Raises ``Refused`` when the process that the worker reported is the ``worker`` itself, no child of one of
    ``parents``, or younger than ``before`` (clock ticks since boot).
    """

    def __init__(self, pid: int, parents: Sequence[int], worker: int, before: int) -> None:
        if pid in (worker, os.getpid()) or not 0 < pid < 1 << 31:
            raise Refused("it is no process of its own")
        try:
            self.fd = lockdown.pidfd_open(pid)
        except OSError as error:
            raise Refused(f"there is no such process: {error.strerror}") from None
        self.pid = pid
        try:
            # Read after the descriptor is open: if the process lives, this is the one that the descriptor means.
            seen = look(pid)
            self.started = seen.started
            if seen.parent not in parents or seen.parent == 0:
                raise Refused("it is no child of the session's process")
            if self.started > before:
                raise Refused("it is younger than the claim")
            if not self.alive:
                raise Refused("it has ended already")
        except Refused:
            self.close()
            raise
        except OSError:
            self.close()
            raise Refused("it has ended already") from None

    @property
    def alive(self) -> bool:
        """Whether any thread of the process lives; False for a process that has ended and was not reaped yet."""
        return not select.select([self.fd], [], [], 0)[0]

    def send(self, number: int) -> None:
        """Send a signal to the process; does nothing when it has ended."""
        send_signal(self.fd, number)

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self.fd)


def await_all(fds: List[int], deadline: float, enough: Callable[[], bool] | None = None) -> None:
    """Wait until the processes of these pidfds are gone and their memory is free, at most until ``deadline``.

    Returns earlier when ``enough`` says so. It is asked a few times at once: a thread that computes is past its last
    call within microseconds of the signal.
    """
    left, looks = list(fds), 0
    while left and time.monotonic() < deadline and not (enough is not None and enough()):
        looks += 1
        if enough is not None and looks <= LOOKS_AT_ONCE:
            os.sched_yield()
            continue
        wait_s = deadline - time.monotonic() if enough is None else ASK_AGAIN_S
        ended = select.select(left, [], [], max(0.0, wait_s))[0]
        left = [fd for fd in left if fd not in ended]


def makes_no_more_calls(pid: int) -> bool:
    """Whether every thread of a killed process has made its last system call; also True when it is gone.

    The kernel marks a thread before it takes it apart (PF_EXITING, in field 9 of ``stat``). Freeing the memory of a
    large process comes after that and takes milliseconds. io_uring and asynchronous I/O, which could go on, are refused
    in every jail.
    """
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            if not int(read_short(f"/proc/{pid}/task/{thread}/stat").rpartition(b")")[2].split()[6]) & _PF_EXITING:
                return False
    except (OSError, IndexError):
        return not os.path.exists(f"/proc/{pid}")
    return True


def send_signal(fd: int, number: int) -> None:
    """Send a signal to the process of a pidfd; does nothing when it has ended."""
    with contextlib.suppress(OSError):
        lockdown.pidfd_send_signal(fd, number)


def signal_same(pid: int, started: int, number: int) -> None:
    """Send a signal to a process that ``alive.descendants`` found; a newer process with the same pid gets none."""
    fd = open_same(pid, started)
    if fd is not None:
        send_signal(fd, number)
        os.close(fd)


def open_same(pid: int, started: int) -> int | None:
    """Return a pidfd of a process that ``alive.descendants`` found; None when it is gone, also if its pid is not."""
    try:
        fd = lockdown.pidfd_open(pid)
    except OSError:
        return None
    with contextlib.suppress(OSError):
        # Read after the descriptor is open: if the process lives, this is the one that the descriptor means.
        if look(pid).started == started:
            return fd
    os.close(fd)
    return None


def end_all(processes: Dict[int, int], deadline: float, enough: Callable[[], bool] | None = None) -> None:
    """Kill the processes that ``alive.descendants`` found and wait until they are gone, at most until ``deadline``.

    The kernel wakes us when the last one is gone. A process that ``select`` cannot take is killed and not waited for:
    the caller looks again. ``enough``: see ``await_all``.
    """
    fds: List[int] = []
    try:
        for pid, started in processes.items():
            fd = open_same(pid, started)
            if fd is None:
                continue
            send_signal(fd, signal.SIGKILL)
            if fd < MOST_WAITED_FOR:
                fds.append(fd)
            else:
                os.close(fd)
        await_all(fds, deadline, enough)
    finally:
        for fd in fds:
            os.close(fd)


def await_no_signal(pid: int, number: int, patience_s: float) -> bool:
    """Wait until a checkpoint has no pending signal of this number; False when it has after ``patience_s`` seconds.

    While a ``WAKE`` of another sender is pending, the kernel would merge ours with it, and the checkpoint, which wakes
    for the gate only, would sleep on.
    """
    deadline = time.monotonic() + patience_s
    while True:
        try:
            lines = read_short(f"/proc/{pid}/status").splitlines()
        except OSError:
            return False
        masks = [int(line.split()[1], 16) for line in lines if line[:7] in (b"SigPnd:", b"ShdPnd:")]
        if masks and not any(mask >> (number - 1) & 1 for mask in masks):
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(ASK_AGAIN_S)


def only_the_worker(worker: int, stay: Dict[int, int], deadline: float) -> bool:
    """Kill the worker. Returns whether it can do nothing any more and nothing else has to be ended, for certain.

    This is the usual case, and quick: a worker that started no processes need not be gone, only harmless, and no
    checkpoint is disturbed. A list of /proc may miss a process that was forked meanwhile. The kernel numbers processes
    in a row, so a list during which the newest number stayed the same misses none; only the init of a pid namespace,
    which the caller must be, sees that number.
    """
    if worker:
        with contextlib.suppress(OSError):  # it is gone
            end_all({worker: look(worker).started}, deadline, lambda: makes_no_more_calls(worker))
        if not makes_no_more_calls(worker):
            return False
    before = last_pid()
    alive = seen_below(os.getpid())
    if any(pid != worker and stay.get(pid) != seen.started for pid, seen in alive.items()) or last_pid() != before:
        return False
    for pid, seen in alive.items():
        if seen.stopped:
            signal_same(pid, seen.started, signal.SIGCONT)
    return True


def end_others(
    worker: Callable[[], int], stay: Dict[int, int], deadline: float, reap: Callable[[], None], *, patient: bool
) -> bool:
    """Kill the worker and every process that does not stay; returns False when some could not be killed in time.

    ``stay`` has the start times of processes that stay, by pid; those that are stopped go on afterwards. With
    ``patient`` the memory of the worker is free afterwards too.
    """

    def harmless() -> bool:
        return makes_no_more_calls(worker())

    while True:
        alive = descendants(os.getpid())
        victims = {pid: started for pid, started in alive.items() if pid == worker() or stay.get(pid) != started}
        # A worker that started no processes need not be gone, only harmless: nothing waits for its place.
        quick = not patient and list(victims) == [worker()]
        if not victims or (quick and harmless()):
            break
        if time.monotonic() > deadline:
            return False
        end_all(victims, deadline, harmless if quick else None)
        reap()
    for pid, started in alive.items():
        signal_same(pid, started, signal.SIGCONT)
    return True
