"""Puts large messages of a page together: a server of Jupyter closes a connection that gets more than 10 MB at once.

Our extension sends a file of a widget in pieces, each in a message of its own, and then the message itself with the
sizes of its buffers. What a page sends comes from a frame, so it is counted: one upload at a time for each page, of a
bounded size.
"""

from __future__ import annotations

from sandbox_kernel.untrusted import ContentRefused
from sandbox_kernel.untrusted.frames.comm_message import MAX_BUFFERS, MAX_UPLOAD_BYTES


class Upload:
    """The pieces that one page has sent and not used yet."""

    def __init__(self) -> None:
        self._name = ""
        self._pieces: list[bytes] = []
        self._size = 0

    def add(self, name: object, parts: list[object]) -> None:
        """Keep the pieces of a message; the first of another upload drops those of the one before."""
        if not isinstance(name, str) or len(name) > 64:
            return
        if name != self._name:
            self._name, self._pieces, self._size = name, [], 0
        for part in parts:
            if isinstance(part, bytes | bytearray | memoryview):
                self._size += len(part)
                if self._size <= MAX_UPLOAD_BYTES:
                    self._pieces.append(bytes(part))

    def buffers(self, name: object, sizes: object) -> list[object]:
        """Return the buffers of a message, and forget the pieces; raises ``ContentRefused`` if some are missing."""
        data, complete = b"".join(self._pieces), name == self._name and self._size <= MAX_UPLOAD_BYTES
        self._name, self._pieces, self._size = "", [], 0
        if not complete or not isinstance(sizes, list) or len(sizes) > MAX_BUFFERS:
            raise ContentRefused("some pieces of it are missing")
        if not all(isinstance(size, int) and 0 <= size <= len(data) for size in sizes) or sum(sizes) != len(data):
            raise ContentRefused("its pieces have another size")
        found: list[object] = []
        at = 0
        for size in sizes:
            found.append(data[at : at + size])
            at += size
        return found
