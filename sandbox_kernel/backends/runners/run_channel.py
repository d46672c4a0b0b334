"""What a runner and the process that started it say about a run, over a socket that has one run at a time.

Messages are pickled values of the classes below, each after its length; a descriptor may come with one. Both ends are
processes of ours: no jail ever holds such a socket, and what a program wrote is only text inside these values.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import socket
import struct
from types import TracebackType
from typing import Self

from sandbox_kernel.ground.values import dataclass
from sandbox_kernel.model import ExecRequest, ExecResult

_LENGTH = struct.Struct(">Q")


@dataclass(frozen=True, kw_only=True)
class RunOrder:
    """To the runner, first: what to run. ``setup`` is a pickled ``ProcessSetup``: equal ones are found quickly."""

    setup: bytes
    request: ExecRequest
    tells_output: bool
    tells_usage: bool
    keeps_files: bool


@dataclass(frozen=True)
class RunPrinted:
    """From the runner: output of the program."""

    stream: str
    text: str


@dataclass(frozen=True)
class RunUses:
    """From the runner: memory in use and its limit, in bytes."""

    used: int
    limit: int


@dataclass(frozen=True)
class RunLeft:
    """From the runner, with the work folder as a descriptor: the program has ended, and its files can be taken."""

    result: ExecResult


@dataclass(frozen=True)
class FilesKept:
    """To the runner, after ``RunLeft``: the files have been taken, and the folder can go."""

    result: ExecResult


@dataclass(frozen=True)
class StopRun:
    """To the runner: end the run. Its loop sees only that the socket can be read. Read later, it means nothing."""


@dataclass(frozen=True)
class RunEnded:
    """From the runner, last: the result. The jail is gone."""

    result: ExecResult


@dataclass(frozen=True)
class RunFailed:
    """From the runner, last: the error that the backend raised. The jail is gone."""

    error: Exception


class BegunMarks:
    """One byte of shared memory for each channel of a runner: whether the run that it has now may have begun.

    The host looks only when a runner died, so a message for it would wake a thread for nothing.
    """

    SIZE = 4096

    def __init__(self, fd: int) -> None:
        self._memory = mmap.mmap(fd, self.SIZE)

    def set(self, number: int, begun: bool) -> None:
        """Write the mark of a channel."""
        self._memory[number] = begun

    def is_set(self, number: int) -> bool:
        """Read the mark of a channel."""
        return bool(self._memory[number])

    def close(self) -> None:
        """Give the memory back."""
        self._memory.close()


class RunChannel:
    """One end of a socket for runs, and its number. Owns the socket; ``EOFError`` when the other end is gone."""

    def __init__(self, end: socket.socket, number: int) -> None:
        self._socket = end
        self.number = number

    def fileno(self) -> int:
        """Return the descriptor, to wait for the next message."""
        return self._socket.fileno()

    def send(self, message: object, folder: int | None = None) -> None:
        """Send a message, and with it the descriptor of a folder."""
        data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
        head = _LENGTH.pack(len(data))
        try:
            if folder is None:
                self._socket.sendall(head + data)
            else:
                sent = socket.send_fds(self._socket, [head], [folder])
                self._socket.sendall(head[sent:] + data)
        except (BrokenPipeError, ConnectionResetError):
            raise EOFError("the other end of a run is gone") from None

    def receive(self) -> tuple[object, int | None]:
        """Wait for the next message; with it the descriptor that came along, which is the caller's to close."""
        try:
            head, folders, _, _ = socket.recv_fds(self._socket, _LENGTH.size, 1)
            folder = folders[0] if folders else None
            if folder is not None:
                os.set_inheritable(folder, False)
            head += self._exactly(_LENGTH.size - len(head), at_start=not head)
            return pickle.loads(self._exactly(_LENGTH.unpack(head)[0])), folder  # noqa: S301 (a process of ours wrote it)
        except ConnectionResetError:
            raise EOFError("the other end of a run is gone") from None

    def _exactly(self, size: int, *, at_start: bool = False) -> bytes:
        parts = []
        if at_start:
            raise EOFError("the other end of a run has closed it")
        while size > 0:
            part = self._socket.recv(min(size, 1 << 20))
            if not part:
                raise EOFError("the other end of a run has closed it")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def shut(self) -> None:
        """End the connection from another thread: who waits for a message gets ``EOFError``."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RD)

    def close(self) -> None:
        """Close this end."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
