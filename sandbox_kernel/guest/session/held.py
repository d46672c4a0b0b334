"""Processes of a session as its gate holds them: by descriptors (pidfd), which never come to mean another process.

A number alone may be used again as soon as a process is collected, and who collects a checkpoint is the runner, its
hostile parent. Stdlib only, Python 3.8 or later.
"""

from __future__ import annotations

import os
import select
import signal
import time

from ..gate import lockdown
from ..gate.alive import look

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Sequence


class Refused(Exception):
    """A process is not what the runner says it is; the message says why."""


class Held:
    """One checkpoint, which started not later than ``before`` (clock ticks since boot).

    ``close`` it when it is of no interest any more: that ends nothing.
    """

    def __init__(self, pid: int, parents: Sequence[int], runner: int, before: int) -> None:
        if pid in (runner, os.getpid()) or not 0 < pid < 1 << 31:
            raise Refused("it is no process of its own")
        try:
            self.fd = open_process(pid)
        except OSError as error:
            raise Refused(f"there is no such process: {error.strerror}") from None
        self.pid = pid
        try:
            # Read after it is held: what is read is then true of the process that the descriptor means, if that lives.
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
        """Whether any thread of it lives; a process that nobody has collected yet is dead."""
        return not select.select([self.fd], [], [], 0)[0]

    def send(self, number: int) -> None:
        """Signal it, if it lives."""
        try:
            send_signal(self.fd, number)
        except OSError:
            pass

    def end(self) -> None:
        """Kill it; it may take a moment (``await_ends``)."""
        self.send(signal.SIGKILL)

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self.fd)


def await_ends(processes: List[Held], patience_s: float) -> None:
    """Return when these are gone and their memory is free, or after a while."""
    deadline = time.monotonic() + patience_s
    left = [held.fd for held in processes]
    while left and time.monotonic() < deadline:
        ended = select.select(left, [], [], max(0.0, deadline - time.monotonic()))[0]
        left = [fd for fd in left if fd not in ended]


def open_process(pid: int) -> int:
    """A descriptor of a process; OSError when there is none."""
    if hasattr(os, "pidfd_open"):
        return os.pidfd_open(pid)
    return lockdown.pidfd_open(pid)


def send_signal(fd: int, number: int) -> None:
    """Signal the process that a descriptor means, and no other; OSError when it is gone."""
    if hasattr(signal, "pidfd_send_signal"):
        signal.pidfd_send_signal(fd, number)
    else:
        lockdown.pidfd_send_signal(fd, number)


def signal_same(pid: int, started: int, number: int) -> None:
    """Signal a process that ``alive.descendants`` found, and nothing that got its number since."""
    try:
        fd = open_process(pid)
    except OSError:
        return
    try:
        if look(pid).started == started:
            send_signal(fd, number)
    except OSError:
        pass
    finally:
        os.close(fd)


def calm(pid: int, patience_s: float) -> bool:
    """Wait until a checkpoint has thrown away every signal that others sent to it; False when it does not.

    One that waits already would swallow ours, and a checkpoint wakes for ours only.
    """
    deadline = time.monotonic() + patience_s
    while True:
        try:
            with open(f"/proc/{pid}/status", "rb") as file:
                waiting = [line.split()[1].strip(b"0") for line in file if line[:7] in (b"SigPnd:", b"ShdPnd:")]
        except OSError:
            return False
        if not any(waiting):
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.0005)
