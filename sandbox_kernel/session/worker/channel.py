"""The host's end of the channel to a worker: accepts only data that the worker itself has written, never blocks.

Programs of the user may have inherited the worker's end. The kernel names the writer of every piece of data
(SCM_CREDENTIALS, which cannot be forged without privilege); data of other processes is discarded unread.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections import deque

import msgspec

from sandbox_kernel.errors import SessionError
from sandbox_kernel.jail.accounting.processes import read_once
from sandbox_kernel.jail.streams import readable
from sandbox_kernel.session.worker.messages import MAX_FRAME, Answer, CellDone, FromWorker, ToWorker, parse
from sandbox_kernel.util.linux_calls import pidfd_open, pidfd_send_signal
from sandbox_kernel.util.wire import BadMessage, Frames, frame

_CREDENTIALS = struct.Struct("3i")
_CHUNK = 1 << 18
#: The most messages that may wait for a worker to read them. Each thread of an honest worker waits for one answer.
MAX_WAITING = 10_000
#: The most bytes of messages that are kept for the next reader.
MAX_KEPT = 2 * MAX_FRAME


def inner_pid(pid: int) -> int:
    """Return the pid that a process has in its own namespace; 0 when it is gone. Raises other errors of the host."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError, ValueError, IndexError):
        return int(read_once(f"/proc/{pid}/status").partition(b"NSpid:")[2].split(b"\n", 1)[0].split()[-1])
    return 0


class WorkerChannel:
    """One socket to a jail. Accepts messages of one process at a time, the *speaker*: the present worker."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        sock.setblocking(False)
        self._frames = Frames(MAX_FRAME)
        self._waiting: deque[memoryview] = deque()
        self._inner = 0
        #: The worker's pid as the host sees it; 0 until its first message.
        self.speaker = 0
        self._speaker_fd = -1
        self._kept: list[FromWorker] = []
        self._kept_bytes = 0
        self._problem: SessionError | None = None
        #: No more data can come: a cell has shut the socket down, or every process that held it has ended.
        self.closed = False

    def fileno(self) -> int:
        """Return the socket's descriptor, for ``selectors``."""
        return self._socket.fileno()

    def listen_to(self, inner: int) -> None:
        """Accept messages only of the process with this pid inside the jail; discards unfinished messages."""
        self._inner = inner
        self.forget_speaker()
        self._frames = Frames(MAX_FRAME)
        self._waiting.clear()
        self._kept, self._kept_bytes, self._problem = [], 0, None

    def forget_speaker(self) -> None:
        """Accept no messages until the next speaker is found; closes the descriptor of the last one."""
        self.speaker = 0
        if self._speaker_fd >= 0:
            os.close(self._speaker_fd)
            self._speaker_fd = -1

    def signal_speaker(self, number: int) -> bool:
        """Signal the worker alone by its pidfd, which cannot mean another process; False when there is no speaker."""
        if self._speaker_fd < 0:
            return False
        with contextlib.suppress(OSError):
            pidfd_send_signal(self._speaker_fd, number)
        return True

    @property
    def speaker_is_dead(self) -> bool:
        """Whether the worker has ended, even if the gate has not reported it yet."""
        return self._speaker_fd >= 0 and readable(self._speaker_fd, 0)

    def put(self, message: ToWorker, descriptor: int | None = None) -> None:
        """Send a message now, or later when the socket has room (``wants_to_write``).

        One with a descriptor is sent while the worker waits and nothing else is to be sent. Raises ``SessionError``
        when the worker keeps asking and reads no answers: they would fill the host's memory.
        """
        if len(self._waiting) >= MAX_WAITING:
            raise SessionError(f"the worker sent questions and did not read {MAX_WAITING} answers")
        data = memoryview(frame(msgspec.json.encode(message)))
        if descriptor is not None:
            self.write_some()
            try:
                sent = 0 if self._waiting else socket.send_fds(self._socket, [data], [descriptor])
            except OSError:
                sent = 0
            if not sent:
                raise SessionError("the worker takes no descriptor now")
            data = data[sent:]
        self._waiting.append(data)
        self.write_some()

    @property
    def wants_to_write(self) -> bool:
        """Whether messages wait to be written."""
        return bool(self._waiting)

    def write_some(self) -> None:
        """Write as much as fits. An error is ignored here: the gate reports a worker that is gone."""
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
        """Return the messages that have come from the worker.

        Raises ``SessionError`` on a malformed message, now and whenever it is called again, and ``OSError`` when the
        host cannot find out which process wrote the data: discarding it could make the caller wait for a message that
        never comes.
        """
        found = self.read_new()
        kept, self._kept, self._kept_bytes = self._kept, [], 0
        return [*kept, *found]

    def read_new(self) -> list[FromWorker]:
        """As ``read``, without what was put back: nobody goes through that again for each new message."""
        if self._problem is None:
            try:
                return self._read_new()
            except SessionError as error:
                self._problem = error
        raise self._problem

    def put_back(self, messages: list[FromWorker]) -> None:
        """Keep messages for the next ``read``: they came with an awaited one, or between cells."""
        self._kept += messages
        self._kept_bytes += sum(message.size for message in messages)
        too_much = len(self._kept) > MAX_WAITING or self._kept_bytes > MAX_KEPT
        # A reply before its request would wait there for it, and others behind it.
        if too_much or any(isinstance(message, Answer | CellDone) for message in messages):
            self._problem = SessionError("the worker sent more between cells than a worker has to say")
            self._kept, self._kept_bytes = [], 0

    def _read_new(self) -> list[FromWorker]:
        try:
            data, extra, _, _ = self._socket.recvmsg(_CHUNK, socket.CMSG_SPACE(_CREDENTIALS.size))
        except OSError:
            return []
        self.closed = self.closed or not data
        pid = 0
        for level, kind, content in extra:
            if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
                pid = _CREDENTIALS.unpack(content[: _CREDENTIALS.size])[0]
        if not self.speaker and self._inner and pid and inner_pid(pid) == self._inner:
            with contextlib.suppress(ProcessLookupError):
                self._speaker_fd = pidfd_open(pid)
                # Checked again now that the pidfd is open: the pid may have been reused.
                if inner_pid(pid) == self._inner:
                    self.speaker = pid
                else:
                    self.forget_speaker()
        try:
            found = list(self._frames.feed(data)) if pid and pid == self.speaker else []
            return [parse(raw) for raw in found]
        except BadMessage as error:
            raise SessionError(f"the worker sent {error}") from None
