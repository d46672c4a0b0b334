"""Processes that a gate starts before its order comes, so that nobody waits for what can be done beforehand.

Stdlib only, Python 3.8 or later.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import _socket as socket
import marshal
import mmap
import os
import struct
import sys

from . import python_once
from .steps import be_step, leave_the_gate, move_up, stand_alone, wait_as_guest
from .wire import receive, send_frame

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List


class Waiting:
    """A program that was started before its order came, and now reads a socket that only we hold.

    It is executed (Node.js), or it is one of our own modules, forked from this interpreter (the wasm runner), which
    has the channel to report on.
    """

    def __init__(self, order: Dict[str, Any], blobs: List[bytes], control: int, channel: int) -> None:
        self.socket, theirs = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(control)
            self.socket.close()
            try:
                leave_the_gate()
                stand_alone(order, blobs)
                if order["argv"][0].startswith("sandbox_guest."):
                    wait_as_guest(order["argv"], theirs.detach(), channel)
                os.close(channel)
                os.set_inheritable(theirs.fileno(), True)
                os.execve(order["argv"][0], [*order["argv"], str(theirs.fileno())], {"LANG": "C.UTF-8"})
            except OSError as error:
                sys.stderr.write(f"sandbox: {error}\n")
            finally:
                os._exit(126)
        theirs.close()
        # While nobody waits: it takes longer than all else that is done when the order comes.
        import json

        self._encode = json.dumps

    #: Processor time that it took to become ready, which is not the program's.
    spent = 0.0

    def begin(self, step: Dict[str, Any], descriptors: List[int]) -> int:
        """Hand over the order; what became of the program is for the caller to wait for."""
        if step["kind"] == "warm":  # a session's cells are counted one by one
            self.spent = cpu_seconds(self.pid)
        order = {"argv": step["argv"], "cwd": step["cwd"], "env": step["env"], "descriptors": len(descriptors)}
        send_frame(self.socket, self._encode(order).encode(), descriptors)
        return self.pid

    def dismiss(self) -> None:
        """The order is for somebody else."""
        self.socket.close()
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


class Ahead:
    """The process of the first step, forked before its order came, which waits for it on a socket that only we hold.

    Forking, and touching the memory that every program touches, is then done before anybody waits.
    """

    def __init__(self, flags: mmap.mmap, control: socket.socket, channel: int) -> None:
        self.socket, theirs = socket.socketpair()
        self.heard, tell = os.pipe()
        tell = move_up(tell)
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.heard)
            control.close()
            self.socket.close()
            try:
                leave_the_gate()
                python_once.rehearse()
                (size,) = struct.unpack(">I", receive(theirs, 4))
                step, blobs = marshal.loads(receive(theirs, size))  # noqa: S302 - the gate wrote it
                theirs.close()
            except EOFError:
                os._exit(0)  # the order was for somebody else
            be_step(step, flags, blobs, channel, tell)
        theirs.close()
        os.close(tell)

    def begin(self, step: Dict[str, Any], blobs: List[bytes]) -> int:
        """Hand over the step; the pid of its process."""
        needed = [blob if number in (step["source"], step["filter"]) else b"" for number, blob in enumerate(blobs)]
        send_frame(self.socket, marshal.dumps((step, needed)))
        return self.pid

    def dismiss(self) -> None:
        """The order is for somebody else."""
        self.socket.close()
        os.close(self.heard)
        os.waitpid(self.pid, 0)


def cpu_seconds(pid: int) -> float:
    """What a process has used so far."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0
