"""Move bytes between two sockets until both are done, one breaks, or nothing has moved for a while."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine

CHUNK = 64 * 1024
#: How long a closing socket may take to hand over its last bytes to a peer that does not read.
_CLOSE_S = 2.0


class Traffic:
    """Bytes that left the sandbox and bytes that came in; what a connection counts, its proxy counts too."""

    def __init__(self, total: Traffic | None = None) -> None:
        self.bytes_out = 0
        self.bytes_in = 0
        self._total = total

    def add_out(self, count: int) -> None:
        """So many bytes left."""
        self.bytes_out += count
        if self._total is not None:
            self._total.add_out(count)

    def add_in(self, count: int) -> None:
        """So many bytes came in."""
        self.bytes_in += count
        if self._total is not None:
            self._total.add_in(count)


class Activity:
    """When something last moved on a connection; both directions share one, so a long download is not idle."""

    def __init__(self, idle_s: float) -> None:
        self._idle_s = idle_s
        self._last = time.monotonic()

    def touch(self) -> None:
        """Something moved."""
        self._last = time.monotonic()

    @property
    def left_s(self) -> float:
        """How long until the connection counts as idle."""
        return self._last + self._idle_s - time.monotonic()


async def send(writer: asyncio.StreamWriter, data: bytes | None, activity: Activity) -> int:
    """Write and wait until the peer keeps up; returns the number of bytes."""
    if not data:
        return 0
    writer.write(data)
    await writer.drain()
    activity.touch()
    return len(data)


async def receive(reader: asyncio.StreamReader, activity: Activity) -> bytes:
    """Read what is there; empty at the end."""
    data = await reader.read(CHUNK)
    activity.touch()
    return data


async def both(
    activity: Activity,
    upload: Coroutine[object, object, None],
    download: Coroutine[object, object, None],
    *,
    ends_with_download: bool = False,
) -> None:
    """Run both directions. Ends when both are done or idle; an error of either ends both and is raised."""
    tasks = (asyncio.create_task(upload), asyncio.create_task(download))
    pending: set[asyncio.Task[None]] = set(tasks)
    try:
        while pending and activity.left_s > 0:
            done, pending = await asyncio.wait(pending, timeout=activity.left_s, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            if ends_with_download and tasks[1].done():
                return
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def close(writer: asyncio.StreamWriter) -> None:
    """Close for certain: a peer that does not read its last bytes must not keep the descriptor."""
    try:
        async with asyncio.timeout(_CLOSE_S):
            writer.close()
            await writer.wait_closed()
    except (TimeoutError, OSError):
        writer.transport.abort()


async def say_and_linger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes) -> None:
    """Send a last word, then read on for a moment.

    Closing a socket with unread bytes in it resets the connection, and the peer loses the answer that explains why.
    """
    try:
        async with asyncio.timeout(_CLOSE_S):
            writer.write(data)
            await writer.drain()
            writer.write_eof()
            for _ in range(64):
                if not await reader.read(CHUNK):
                    break
    except (TimeoutError, OSError):
        return
