"""What one cell prints: read as it comes, and taken to the last byte when something must be shown after it."""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import termios

from sandbox_kernel.jail.streams import CHUNK, Capture
from sandbox_kernel.model import OnOutput
from sandbox_kernel.session.cell.listeners import ListenerFailed, emitter


class CellOutput:
    """Both streams of a cell. The pipes are the session's and outlive it."""

    def __init__(self, stdout_fd: int, stderr_fd: int, output_bytes: int, on_output: OnOutput | None) -> None:
        self.stdout = Capture(output_bytes, emitter(on_output, "stdout"))
        self.stderr = Capture(output_bytes, emitter(on_output, "stderr"))
        self.captures = {stdout_fd: self.stdout, stderr_fd: self.stderr}

    def read(self, fd: int) -> bool:
        """Take what has come; False when no more will."""
        try:
            data = os.read(fd, CHUNK)
        except BlockingIOError:
            return True
        self.captures[fd].feed(data)
        return bool(data)

    def add(self, stream: str, text: str) -> None:
        """Take text that a thread of the cell has sent."""
        (self.stdout if stream == "stdout" else self.stderr).feed(text.encode("utf-8", "replace"))

    def drain(self) -> None:
        """What was printed before a display comes before it."""
        for fd, capture in self.captures.items():
            left = _waiting_bytes(fd)
            if left:
                capture.feed(os.read(fd, left))

    def settle(self) -> ListenerFailed | None:
        """Take what is in the pipes now, and no more: others may go on writing. Returns how a listener failed."""
        failure: ListenerFailed | None = None
        for fd, capture in self.captures.items():
            left = _waiting_bytes(fd)
            try:
                with contextlib.suppress(OSError):
                    while left > 0 and (data := os.read(fd, min(left, CHUNK))):
                        left -= len(data)
                        capture.feed(data)
                capture.finish()
            except ListenerFailed as error:
                failure = failure or error
        return failure


def _waiting_bytes(fd: int) -> int:
    count = array.array("i", [0])
    with contextlib.suppress(OSError):
        fcntl.ioctl(fd, termios.FIONREAD, count)
    return count[0]
