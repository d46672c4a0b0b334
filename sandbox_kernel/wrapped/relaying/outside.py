"""The outside of a wrapped kernel: the five sockets that front ends connect to, as their connection file says."""

from __future__ import annotations

import hashlib
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Self

import msgspec
import zmq

from sandbox_kernel import __version__
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.util.wire import BadMessage, decode
from sandbox_kernel.wrapped.inner_kernel import CHANNELS
from sandbox_kernel.wrapped.kernel_words import remark
from sandbox_kernel.wrapped.relaying.cleaning import Table
from sandbox_kernel.wrapped.relaying.wire import Signer, from_json, joined, split, to_json

#: A message of at least this size is counted; libzmq keeps at most a thousand others for each front end.
LARGE = 64 << 10
#: Plain numbers: libzmq's Python names are enumerations, which take longer to combine than a frame to send.
_MORE = int(zmq.SNDMORE)
#: When more waits, nothing more is taken from the kernel; when still more waits, large messages are dropped.
FULL, MOST = 64 << 20, 256 << 20
#: A front end that has read nothing for so long does not stop the others any more.
STUCK_S = 10.0


class UnreadMessages:
    """The large messages that front ends have not read, oldest first; ``dropped`` counts those that were not sent.

    They are counted in bytes: libzmq counts messages only, and a front end that is stopped reads none.
    """

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
        while self._messages and all(tracker.done for tracker in self._messages[0][0]):
            self._bytes -= self._messages.popleft()[1]
            self._moved = time.monotonic()


#: How many messages that continue or replace one another a page gets at once, and then in a second; how many wait.
AT_ONCE, A_SECOND, _MOST_WAIT = 1000, 100, 50


class Paced:
    """Sends what draws little by itself at a pace: of what waits, texts are joined, else the newest takes the place.

    So a bar that runs for hours shows where it stands, no text of a cell is lost, and a flood costs a page little.
    """

    def __init__(self) -> None:
        self.waiting: dict[tuple[str, str, str], tuple[Table, Callable[[Table], None]]] = {}
        self._room, self._since = float(AT_ONCE), time.monotonic()

    def add(self, kind: str, cell: str, content: Table, send: Callable[[Table], None]) -> None:
        """Take text or a clearing of a cell, an update of a display, or a status: clean content, and what sends it."""
        waiting, clear, again = self.waiting, (cell, "clear_output", ""), (cell, "clear_output", "wait")
        texts = [key for key in waiting if key[:2] == (cell, "stream")]
        key = ("" if kind == "status" else cell, kind, str(content.get("name") or content.get("transient")))
        if kind == "clear_output":
            key = again if content["wait"] and texts else clear  # the texts are shown until the next one
        if key == clear or (kind == "stream" and again in waiting):
            for old in texts:
                del waiting[old]
            if again in waiting:
                waiting[clear] = waiting.pop(again)
        before, _ = waiting.pop(key, ({}, None))
        if kind == "stream":
            content = {**content, "text": f"{before.get('text', '')}{content['text']}"}
        waiting[key] = content, send
        if len(waiting) > _MOST_WAIT:
            del waiting[next((each for each in waiting if each[1] != "stream"), next(iter(waiting)))]
        self.look() if len(str(content.get("text"))) < LARGE else self.let_go()

    def look(self) -> None:
        """Send what waits if it is time."""
        now = time.monotonic()
        self._room, self._since = min(AT_ONCE, self._room + A_SECOND * (now - self._since)), now
        if self._room >= 1:
            self.let_go()

    def let_go(self) -> None:
        """Send what waits: it is time, or something comes that must not overtake it."""
        waiting, self.waiting = self.waiting, {}
        self._room = max(-A_SECOND, self._room - len(waiting))
        for content, send in waiting.values():
            send(content)


_TYPES = {"shell": zmq.ROUTER, "control": zmq.ROUTER, "stdin": zmq.ROUTER, "hb": zmq.ROUTER, "iopub": zmq.XPUB}
#: How long the last messages may take to leave when the kernel has ended.
LINGER_MS = 2000


class ConnectionFile(msgspec.Struct):
    """What Jupyter tells a kernel: where front ends connect, and the keys of their messages."""

    shell_port: int
    iopub_port: int
    stdin_port: int
    control_port: int
    hb_port: int
    transport: str = "tcp"
    ip: str = "127.0.0.1"
    key: str = ""
    signature_scheme: str = "hmac-sha256"
    curve_publickey: str | None = None
    curve_secretkey: str | None = None

    @classmethod
    def read(cls, path: str) -> Self:
        """Read a connection file. Raises ``InvalidRequest`` when it is not usable."""
        try:
            with open(path, "rb") as file:
                return decode(file.read(), cls)
        except OSError as error:
            raise InvalidRequest(f"connection file {path!r} cannot be read: {error.strerror}") from None
        except BadMessage as error:
            raise InvalidRequest(f"connection file {path!r} is not one of Jupyter: {error}") from None

    def port(self, channel: str) -> int:
        """Return the port of a channel."""
        return int(getattr(self, f"{channel}_port"))

    def signer(self) -> Signer:
        """Return what signs messages. Raises ``InvalidRequest`` for another scheme than HMAC."""
        name, _, digest = self.signature_scheme.partition("-")
        if name != "hmac" or digest not in hashlib.algorithms_available:
            scheme = f"signature_scheme {self.signature_scheme!r:.80}"
            raise InvalidRequest(f"connection file: {scheme} is not known; hmac-sha256 is")
        return Signer(self.key.encode(), digest)


#: The version of the protocol of our own messages.
PROTOCOL = "5.4"


class Outside:
    """The five bound sockets, by channel, and the relay's own messages: it signs them with the outside key."""

    def __init__(self, address: ConnectionFile) -> None:
        self.address, self.signer = address, address.signer()
        self._context = zmq.Context()
        self.by_channel: dict[str, zmq.Socket[bytes]] = {}
        self.waiting = UnreadMessages()
        self._session = uuid.uuid4().hex
        for channel in CHANNELS:
            sock = self._context.socket(_TYPES[channel])
            sock.linger = LINGER_MS
            if channel == "iopub":
                # Every subscription is reported, so that each gets a welcome.
                sock.setsockopt(zmq.XPUB_VERBOSE, 1)
            else:
                # A front end that connects again gets its old name back.
                sock.setsockopt(zmq.ROUTER_HANDOVER, 1)
            if address.curve_publickey and address.curve_secretkey:
                sock.curve_publickey = address.curve_publickey.encode()
                sock.curve_secretkey = address.curve_secretkey.encode()
                sock.curve_server = True
            mark = ":" if address.transport == "tcp" else "-"
            sock.bind(f"{address.transport}://{address.ip}{mark}{address.port(channel)}")
            self.by_channel[channel] = sock

    #: Returns what ends the line and the colours of the kernel's text before a line of ours.
    closing: Callable[[], str] = staticmethod(str)

    def send_parts(
        self, channel: str, routing: Sequence[bytes], parts: Sequence[bytes], buffers: Sequence[bytes] = ()
    ) -> None:
        """Sign the four JSON parts of a message and send it."""
        self.waiting.send(self.by_channel[channel], joined(self.signer, routing, parts, buffers))

    def send(
        self,
        channel: str,
        routing: Sequence[bytes],
        kind: str,
        parent: Mapping[str, object],
        content: Mapping[str, object],
        buffers: Sequence[bytes] = (),
    ) -> None:
        """Send a message of ours on a channel."""
        parts = [to_json(part) for part in (self.header(kind), dict(parent), {}, dict(content))]
        self.send_parts(channel, routing, parts, buffers)

    def publish(
        self, kind: str, parent: Mapping[str, object], content: Mapping[str, object], topic: bytes | None = None
    ) -> None:
        """Send a message of ours to every front end."""
        self.send("iopub", [kind.encode() if topic is None else topic], kind, parent, content)

    def print_words(self, parent: Mapping[str, object], words: str) -> None:
        """Show a line of ours in a cell, on standard error; it may quote the kernel."""
        self.publish("stream", parent, {"name": "stderr", "text": self.closing() + remark(words)})

    def welcome(self) -> None:
        """Answer a new subscription to the outputs, as kernels of protocol 5.4 do."""
        event = self.by_channel["iopub"].recv()
        if event[:1] == b"\x01":
            topic = event[1:].decode("utf-8", "replace")
            self.publish("iopub_welcome", {}, {"subscription": topic}, event[1:])

    def header(self, kind: str) -> Table:
        """Return a new header."""
        return {
            "msg_id": f"{self._session}_{uuid.uuid4().hex}",
            "msg_type": kind,
            "username": "sandbox",
            "session": self._session,
            "date": datetime.now(UTC).isoformat(),
            "version": PROTOCOL,
        }

    def close(self) -> None:
        """Send what waits, then close."""
        for sock in self.by_channel.values():
            sock.close()
        self._context.term()


#: The longest wait between two checks that the front end still lives, in milliseconds.
_CHECK_MS = 1000


def refuse(outside: Outside, error: Mapping[str, object], still_wanted: Callable[[], bool]) -> None:
    """Answer front ends, which wait for it, with an error until one shuts the kernel down or nobody wants it."""
    sockets = outside.by_channel
    poller = zmq.Poller()
    for sock in sockets.values():
        poller.register(sock, zmq.POLLIN)
    while still_wanted():
        ready = dict(poller.poll(_CHECK_MS))
        if sockets["iopub"] in ready:
            outside.welcome()
        if sockets["hb"] in ready:
            sockets["hb"].send_multipart(sockets["hb"].recv_multipart())
        for channel in ("control", "shell", "stdin"):
            if sockets[channel] in ready and not _answer(outside, channel, error):
                return


def _answer(outside: Outside, channel: str, error: Mapping[str, object]) -> bool:
    """Answer one request; returns False when it was the last one."""
    packet = split(outside.by_channel[channel].recv_multipart())
    if packet is None or not outside.signer.verifies(packet.signature, packet.parts):
        return True
    header = from_json(packet.parts[0]) or {}
    kind = str(header.get("msg_type"))
    if not kind.endswith("_request"):
        return True
    outside.publish("status", header, {"execution_state": "busy"})
    content: Mapping[str, object] = {"status": "error", **error}
    if kind == "kernel_info_request":
        content = {
            "status": "ok",
            "protocol_version": PROTOCOL,
            "implementation": "sandbox-kernel",
            "implementation_version": __version__,
            "language_info": {"name": "text", "version": "", "mimetype": "text/plain", "file_extension": ".txt"},
            "banner": error["evalue"],
        }
    elif kind == "execute_request":
        outside.publish("error", header, error)
        content = {**content, "execution_count": 0}
    elif kind == "shutdown_request":
        content = {"status": "ok", "restart": bool((from_json(packet.parts[3]) or {}).get("restart"))}
    outside.send(channel, packet.routing, kind.replace("_request", "_reply"), header, content)
    outside.publish("status", header, {"execution_state": "idle"})
    return kind != "shutdown_request"
