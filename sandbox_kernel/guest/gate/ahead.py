"""Processes that a gate starts before its order comes, so that the run starts faster.

Standard library only, Python 3.8 or later.
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
from .wire import receive, receive_descriptors, send_frame

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List


class Waiting:
    """A program that is started before its order comes and reads the order from a socket of the gate.

    It is an executable (Node.js), or a module of ours (the embedder) in a fork of this interpreter. A module also
    has the channel to the host.
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
        # Import json now: after the order has come, the import would be the slowest part.
        import json

        self._encode = json.dumps

    #: CPU time that it took to become ready; it does not count as the program's.
    spent = 0.0

    def begin(self, step: Dict[str, Any], descriptors: List[int], hatch: int) -> int:
        """Send the order to the waiting program and return its pid; the caller waits for its end.

        The hatch to host functions is the last descriptor; -1 for none.
        """
        descriptors = descriptors if hatch < 0 else [*descriptors, hatch]
        if step["kind"] == "warm":  # a session does not need this: the CPU time of each cell is measured by itself
            self.spent = cpu_seconds(self.pid)
        order = {"argv": step["argv"], "cwd": step["cwd"], "env": step["env"], "descriptors": len(descriptors)}
        order["hatch"] = hatch >= 0
        order["functions"] = step.get("functions") or []
        send_frame(self.socket, self._encode(order).encode(), descriptors)
        return self.pid

    def dismiss(self) -> None:
        """End the waiting program: the order is for another kind of step."""
        self.socket.close()
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


class Ahead:
    """The process of the first step, forked before its order comes; it reads the order from a socket of the gate.

    So the fork, and the copies of memory pages that every program writes to, take place before the order comes.
    """

    def __init__(self, flags: mmap.mmap, control: socket.socket, channel: int) -> None:
        self.socket, theirs = socket.socketpair()
        self.problem_read, problem_write = os.pipe()
        problem_write = move_up(problem_write)
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.problem_read)
            control.close()
            self.socket.close()
            try:
                leave_the_gate()
                python_once.rehearse()
                (size,) = struct.unpack(">I", receive(theirs, 4))
                step, blobs, hatchs = marshal.loads(receive(theirs, size))  # noqa: S302 - the gate wrote it
                hatch = receive_descriptors(theirs, hatchs)
                theirs.close()
            except EOFError:
                os._exit(0)  # dismissed: the order is for another kind of step
            be_step(step, flags, blobs, channel, problem_write, hatch[0] if hatch else -1)
        theirs.close()
        os.close(problem_write)

    def begin(self, step: Dict[str, Any], blobs: List[bytes], hatch: int) -> int:
        """Send the step, and the hatch to host functions if it may call any, to the process and return its pid."""
        needed = [blob if number in (step["source"], step["filter"]) else b"" for number, blob in enumerate(blobs)]
        hatchs = [hatch] if hatch >= 0 else []
        send_frame(self.socket, marshal.dumps((step, needed, len(hatchs))), hatchs)
        return self.pid

    def dismiss(self) -> None:
        """End the process: the order is for another kind of step."""
        self.socket.close()
        os.close(self.problem_read)
        os.waitpid(self.pid, 0)


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process so far, in seconds; 0 when it cannot be read."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0
