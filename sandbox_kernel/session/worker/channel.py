"""The host's end of the channel to a worker: reads only what the worker itself has written, never blocks.

The user's programs may have inherited the worker's end. The kernel says for every piece of data which process wrote it
(SCM_CREDENTIALS, which cannot be forged without privilege), so what anybody else writes there is not even looked at.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
from collections import deque

from sandbox_kernel.errors import SessionError
from sandbox_kernel.jail.streams.readable import readable
from sandbox_kernel.session.worker.message_reader import Cutter
from sandbox_kernel.session.worker.messages import FromWorker, ToWorker, encode

_CREDENTIALS = struct.Struct("3i")
_CHUNK = 1 << 18
#: Messages that wait for a worker to read; each thread of an honest one waits for one answer at a time.
MAX_WAITING = 10_000


def inner_pid(pid: int) -> int:
    """The pid that a process has inside its own namespace; 0 when it is gone. Other trouble of the host is raised."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError, ValueError, IndexError):
        with open(f"/proc/{pid}/status") as file:
            for line in file:
                if line.startswith("NSpid:"):
                    return int(line.split()[-1])
    return 0


class WorkerChannel:
    """One socket to a jail, through which one process at a time is listened to."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        sock.setblocking(False)
        self._cutter = Cutter()
        self._waiting: deque[memoryview] = deque()
        self._inner = 0
        #: The worker's pid as the host sees it; 0 until it has said something.
        self.speaker = 0
        self._speaker_fd = -1
        #: Nothing more can come: a cell has shut the socket down for everybody, or all who held it are gone.
        self.closed = False

    def fileno(self) -> int:
        """For ``selectors``."""
        return self._socket.fileno()

    def listen_to(self, inner: int) -> None:
        """From now on only the process with this pid inside the jail is heard; what was half said is forgotten."""
        self._inner = inner
        self.forget_speaker()
        self._cutter = Cutter()
        self._waiting.clear()

    def forget_speaker(self) -> None:
        """Listen to nobody; gives back the descriptor."""
        self.speaker = 0
        if self._speaker_fd >= 0:
            os.close(self._speaker_fd)
            self._speaker_fd = -1

    def kill_speaker(self) -> bool:
        """End the worker itself, by a handle that cannot mean another process; False when there is none."""
        if self._speaker_fd < 0:
            return False
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(self._speaker_fd, signal.SIGKILL)
        return True

    @property
    def speaker_is_dead(self) -> bool:
        """Whether the worker has ended, before anybody said so."""
        return self._speaker_fd >= 0 and readable(self._speaker_fd, 0)

    def put(self, message: ToWorker) -> None:
        """Send a message, now or when there is room (``wants_to_write``).

        ``SessionError`` when the worker asks and asks and reads no answer: they would fill the host's memory.
        """
        if len(self._waiting) >= MAX_WAITING:
            raise SessionError(f"the worker sent questions and did not read {MAX_WAITING} answers")
        self._waiting.append(memoryview(encode(message)))
        self.write_some()

    @property
    def wants_to_write(self) -> bool:
        """Whether something waits for room."""
        return bool(self._waiting)

    def write_some(self) -> None:
        """Write what fits. A worker that is gone is noticed by other means."""
        try:
            while self._waiting:
                sent = self._socket.send(self._waiting[0])
                self._waiting[0] = self._waiting[0][sent:]
                if not self._waiting[0]:
                    self._waiting.popleft()
        except BlockingIOError:
            return
        except OSError:
            self._waiting.clear()

    def read(self) -> list[FromWorker]:
        """What the worker has said since; ``SessionError`` when it is nonsense.

        ``OSError`` when the host cannot find out who speaks: to drop what was said would be to wait for it in vain.
        """
        found: list[FromWorker] = []
        try:
            data, extra, _, _ = self._socket.recvmsg(_CHUNK, socket.CMSG_SPACE(_CREDENTIALS.size))
        except OSError:
            return found
        self.closed = self.closed or not data
        pid = 0
        for level, kind, content in extra:
            if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
                pid = _CREDENTIALS.unpack(content[: _CREDENTIALS.size])[0]
        if not self.speaker and self._inner and pid and inner_pid(pid) == self._inner:
            self._adopt(pid)
        if pid and pid == self.speaker:
            found = self._cutter.feed(data)
        return found

    def _adopt(self, pid: int) -> None:
        """Take this process for the worker. It was looked up after it spoke, so look again once we hold it."""
        with contextlib.suppress(ProcessLookupError):
            self._speaker_fd = os.pidfd_open(pid)
            if inner_pid(pid) == self._inner:
                self.speaker = pid
            else:
                self.forget_speaker()
