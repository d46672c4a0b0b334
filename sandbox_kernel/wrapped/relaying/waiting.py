"""What was sent to front ends and they have not read: counted in bytes, because libzmq counts messages only.

A kernel may send megabytes in each message, and a front end that is stopped, or one that another user left connected,
reads none of them. Small messages are bounded by their number, as libzmq does it. Large ones are counted here.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

import zmq

#: A message of at least this size is counted; libzmq keeps at most a thousand others for each front end.
LARGE = 64 << 10
#: Plain numbers: libzmq's Python names are enumerations, which take longer to combine than a frame to send.
_MORE = int(zmq.SNDMORE)
#: When more waits, nothing more is taken from the kernel; when still more waits, large messages are dropped.
FULL, MOST = 64 << 20, 256 << 20
#: A front end that has read nothing for so long does not stop the others any more.
STUCK_S = 10.0


class UnreadMessages:
    """The large messages that wait, oldest first; ``dropped`` counts those that were not sent."""

    def __init__(self) -> None:
        self._messages: deque[tuple[list[zmq.MessageTracker], int]] = deque()
        self._bytes = 0
        self._moved = time.monotonic()
        self.dropped = 0

    @property
    def is_full(self) -> bool:
        """Whether front ends have to read first; False when they do not read at all."""
        self._forget()
        return self._bytes > FULL and time.monotonic() - self._moved < STUCK_S

    def send(self, sock: zmq.Socket[bytes], frames: Sequence[bytes]) -> None:
        """Send a message; drop it if it is large and too much waits."""
        size = sum(map(len, frames))
        if size < LARGE:
            for frame in frames[:-1]:
                sock.send(frame, _MORE)
            sock.send(frames[-1])
            return
        self._forget()
        if self._bytes + size > MOST:
            self.dropped += 1
            return
        if not self._messages:
            self._moved = time.monotonic()
        parts = [zmq.Frame(part, track=True, copy=False) for part in frames]
        sock.send_multipart(parts, copy=False)
        self._messages.append(([part.tracker for part in parts if part.tracker is not None], size))
        self._bytes += size

    def _forget(self) -> None:
        """Forget the messages that have left."""
        while self._messages and all(tracker.done for tracker in self._messages[0][0]):
            self._bytes -= self._messages.popleft()[1]
            self._moved = time.monotonic()
