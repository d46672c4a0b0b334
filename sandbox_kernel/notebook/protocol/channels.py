"""The five sockets of a kernel. Messages are made, signed and checked by ``jupyter_client.session``.

A ZeroMQ socket announces messages on a descriptor once, and any call on the socket may take the announcement away. So
after each call that touched a socket ``Channels`` looks whether something is left to be read.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import zmq
from jupyter_client.session import DELIM

Frames = list[bytes]
_LINGER_MS = 1000
#: A sum of pyzmq's flags is an enumeration, which takes longer to make than a frame to send. Large ones are not copied.
_MORE, _send_frame = int(zmq.SNDMORE), zmq.backend.Socket.send


class Channels:
    """Bound sockets by name; ``send`` is for any thread. ``where`` (``ConnectionFileMixin``) gets ports that were 0."""

    def __init__(self, where: Any) -> None:
        self.session = where.session
        #: The header of a request that was answered last, and as bytes: several answers follow each other.
        self._parent: tuple[object, bytes] = (None, b"")
        self._lock = threading.RLock()
        self._context = zmq.Context()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._readers: dict[Any, Callable[[], None]] = {}
        self.shell = _bound(self._context, where, "shell", zmq.ROUTER)
        self.control = _bound(self._context, where, "control", zmq.ROUTER)
        self.stdin = _bound(self._context, where, "stdin", zmq.ROUTER)
        self.iopub = _bound(self._context, where, "iopub", zmq.XPUB)
        # A context of its own: libzmq takes the GIL to free large messages, and a heart must not wait for that.
        self._heart_context = zmq.Context()
        heart = _bound(self._heart_context, where, "hb", zmq.ROUTER)
        threading.Thread(target=_beat, args=(heart,), name="heartbeat", daemon=True).start()

    def send(
        self,
        socket: Any,
        kind: str,
        content: Mapping[str, object],
        parent: Mapping[str, object] | None = None,
        ident: bytes | Sequence[bytes] | None = None,
        *,
        metadata: Mapping[str, object] | None = None,
        buffers: Sequence[bytes] | None = None,
    ) -> str:
        """Send one message, and return its id. A forked copy of this process sends none."""
        session, pack = self.session, self.session.pack
        if session.pid != os.getpid():
            return ""
        with self._lock:
            header = session.msg_header(kind)
        # The lock is not held to encode, which may take long.
        asked, kept = parent.get("header", parent) if parent else {}, self._parent
        if kept[0] is not asked:
            kept = self._parent = (asked, pack(asked))
        parts = [pack(header), kept[1], pack(dict(metadata or {})), pack(dict(content))]
        idents = [ident] if isinstance(ident, bytes) else ident or ()
        frames = [*idents, DELIM, session.sign(parts), *parts, *(buffers or ())]
        with self._lock:
            if not socket.closed:
                for frame in frames[:-1]:
                    _send_frame(socket, frame, _MORE, False)
                _send_frame(socket, frames[-1], 0, False)
                self._look(socket)
        return str(header["msg_id"])

    def recv(self, socket: Any, flags: int) -> tuple[Any, Any]:
        """Return the identities and the message that waits; a pair of None without one."""
        with self._lock:
            found: tuple[Any, Any] = self.session.recv(socket, flags)
            return found

    def listen(self, socket: Any, take: Callable[[Any, Frames], None]) -> None:
        """Call ``take`` on this loop with the socket and the frames of every message that comes."""
        self._loop = asyncio.get_running_loop()
        self._readers[socket] = lambda: self._read(socket, take)
        self._loop.add_reader(socket.FD, self._readers[socket])
        self._loop.call_soon(self._readers[socket])

    def read_now(self, socket: Any) -> None:
        """Take in every message that has arrived."""
        self._readers[socket]()

    def _read(self, socket: Any, take: Callable[[Any, Frames], None]) -> None:
        while not socket.closed:
            try:
                with self._lock:
                    frames = socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            take(socket, frames)

    def _look(self, socket: Any) -> None:
        reader = self._readers.get(socket)
        if reader is not None and self._loop is not None and socket.getsockopt(zmq.EVENTS) & zmq.POLLIN:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the kernel ends
                self._loop.call_soon_threadsafe(reader)

    def welcome(self, frames: Frames) -> None:
        """Greet a new subscriber of iopub: from this message on it misses none."""
        topic = frames[0][1:]
        if frames[0][:1] == b"\x01":
            with contextlib.suppress(UnicodeDecodeError):
                self.send(self.iopub, "iopub_welcome", {"subscription": topic.decode()}, {}, topic or None)

    def close(self) -> None:
        """Close all sockets. Messages that are still to be sent get a second."""
        with self._lock:
            for socket in self._readers:
                if self._loop is not None:
                    self._loop.remove_reader(socket.FD)
            self._readers.clear()
            for socket in (self.shell, self.control, self.stdin, self.iopub):
                socket.close()
        self._context.term()
        self._heart_context.term()


def _bound(context: Any, where: Any, channel: str, kind: int) -> Any:
    socket = context.socket(kind)
    socket.linger = _LINGER_MS
    if kind == zmq.ROUTER:
        socket.router_handover = 1  # a client that connects again under its old name gets its messages
    if where.curve_secretkey is not None:
        socket.curve_secretkey, socket.curve_publickey = where.curve_secretkey, where.curve_publickey
        socket.curve_server = True
    port = getattr(where, f"{channel}_port")
    if where.transport != "tcp":
        port = port or next(number for number in range(1, 10_000) if not os.path.exists(f"{where.ip}-{number}"))
        socket.bind(f"ipc://{where.ip}-{port}")
    elif port:
        socket.bind(f"tcp://{where.ip}:{port}")
    else:
        port = socket.bind_to_random_port(f"tcp://{where.ip}")
    setattr(where, f"{channel}_port", port)
    return socket


def _beat(socket: Any) -> None:
    """Send back whatever comes, without Python, until the context ends."""
    while True:
        try:
            zmq.proxy(socket, socket)
        except zmq.ContextTerminated:
            socket.close()
            return
        except zmq.ZMQError:  # a signal came
            continue
