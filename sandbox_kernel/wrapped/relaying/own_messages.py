"""Messages of the relay itself: a line in a cell, how a kernel ended, replies that the kernel does not give."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from sandbox_kernel.wrapped.cleaning.clean_parts import Table
from sandbox_kernel.wrapped.relaying.cell_clock import SentCell
from sandbox_kernel.wrapped.relaying.outside import OutsideSockets
from sandbox_kernel.wrapped.relaying.wire import joined, to_json

PROTOCOL = "5.4"
#: Printed text of one message, in characters; kernels send what a cell printed in a second as one.
MAX_PRINTED = 4 << 20


class OwnMessages:
    """Makes messages of one relay, signs them with the outside key and sends them to front ends."""

    def __init__(self, outside: OutsideSockets) -> None:
        self._outside = outside
        self._theirs = outside.address.signer
        self._session = uuid.uuid4().hex
        #: Returns what ends the line and the colours of the kernel's text before a line of ours.
        self.closing: Callable[[], str] = str

    def print_words(self, parent: Mapping[str, object], text: str) -> None:
        """Show a line in a cell, on standard error."""
        self.publish("stream", parent, {"name": "stderr", "text": self.closing() + text})

    def welcome(self, event: bytes) -> None:
        """Answer a new subscription to the outputs, as kernels of protocol 5.4 do."""
        if event[:1] == b"\x01":
            topic = event[1:].decode("utf-8", "replace")
            self.publish("iopub_welcome", {}, {"subscription": topic}, event[1:])

    def say_end(self, error: Mapping[str, object], cells: Sequence[SentCell]) -> None:
        """Show in the notebook why the kernel ended, and finish every cell that it had."""
        if end := self.closing():
            self.publish("stream", cells[0].header if cells else {}, {"name": "stderr", "text": end})
        if not cells:
            self.publish("error", {}, error)
        for number, cell in enumerate(cells):
            if number == 0:
                self.publish("error", cell.header, error)
            self.send("shell", cell.routing, "execute_reply", cell.header, {"status": "error", **error})
            self.publish("status", cell.header, {"execution_state": "idle"})

    def publish(
        self, kind: str, parent: Mapping[str, object], content: Mapping[str, object], topic: bytes | None = None
    ) -> None:
        """Send a message to every front end."""
        self.send("iopub", [kind.encode() if topic is None else topic], kind, parent, content)

    def send(
        self,
        channel: str,
        routing: Sequence[bytes],
        kind: str,
        parent: Mapping[str, object],
        content: Mapping[str, object],
        buffers: Sequence[bytes] = (),
    ) -> None:
        """Send a message on a channel."""
        self._send_encoded(channel, routing, kind, parent, to_json(dict(content)), buffers)

    def print_encoded(self, parent: Mapping[str, object], content: bytes) -> None:
        """Send printed text that is JSON already."""
        self._send_encoded("iopub", [b"stream"], "stream", parent, content)

    def _send_encoded(
        self,
        channel: str,
        routing: Sequence[bytes],
        kind: str,
        parent: Mapping[str, object],
        content: bytes,
        buffers: Sequence[bytes] = (),
    ) -> None:
        parts = [to_json(self.header(kind)), to_json(dict(parent)), b"{}", content]
        self._outside.send(channel, joined(self._theirs, routing, parts, buffers))

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
