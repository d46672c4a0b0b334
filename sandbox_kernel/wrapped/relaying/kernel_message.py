"""A message of a kernel in a jail, read from its frames: headers are cleaned here, metadata and content are not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sandbox_kernel.ground.wire import has_too_many_parts
from sandbox_kernel.wrapped.cleaning import clean_parts
from sandbox_kernel.wrapped.cleaning.clean_parts import MalformedMessage, Table
from sandbox_kernel.wrapped.relaying.wire import Packet, from_json, to_json

#: From this size on, in bytes, a header is not kept, and printed text is decoded only if it needs cleaning.
LARGE = 64 << 10
#: The largest message but for printed text, in bytes without its buffers: to decode it takes a fraction of a second.
MAX_JSON = 32 << 20


@dataclass(frozen=True)
class KernelMessage:
    """A message of the kernel: its headers are clean, its metadata and content are not."""

    channel: str
    kind: str
    header: Table
    parent: Table
    metadata: Table
    content: Table
    buffers: Sequence[bytes]
    #: The parent as JSON.
    encoded_parent: bytes = field(repr=False)

    @property
    def parent_id(self) -> str:
        """The id of the request that it belongs to."""
        return str(self.parent.get("msg_id"))

    @property
    def is_idle(self) -> bool:
        """Whether it says that the kernel has finished a request."""
        return self.kind == "status" and self.content.get("execution_state") == "idle"


class ParentReader:
    """Reads the header of the request that a message belongs to, once for all messages of a cell."""

    def __init__(self) -> None:
        self._raw: bytes | None = None
        self._clean: Table = {}
        self._encoded = b""

    def read(self, raw: bytes) -> tuple[Table, bytes]:
        """Return the clean header of a message's parent, and this as JSON. Raises ``MalformedMessage``."""
        if raw == self._raw:
            return self._clean, self._encoded
        clean = clean_parts.header(clean_parts.table(from_json(raw)))
        encoded = to_json(clean)
        if len(raw) < LARGE:
            self._raw, self._clean, self._encoded = raw, clean, encoded
        return clean, encoded


def read_message(channel: str, packet: Packet | None, parents: ParentReader) -> KernelMessage:
    """Return a message with clean headers. Raises ``MalformedMessage``."""
    if packet is None or any(map(has_too_many_parts, packet.parts)):
        raise MalformedMessage
    raw_header, raw_parent, raw_metadata, raw_content = packet.parts
    header = clean_parts.header(clean_parts.table(from_json(raw_header)))
    if header.get("msg_type") != "stream" and sum(map(len, packet.parts)) > MAX_JSON:
        raise MalformedMessage
    parent, encoded = parents.read(raw_parent)
    metadata, content = clean_parts.table(from_json(raw_metadata)), clean_parts.table(from_json(raw_content))
    kind = header.get("msg_type")
    if not isinstance(kind, str) or not isinstance(header.get("msg_id"), str):
        raise MalformedMessage
    return KernelMessage(channel, kind, header, parent, metadata, content, packet.buffers, encoded)
