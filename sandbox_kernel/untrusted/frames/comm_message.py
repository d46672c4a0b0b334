"""Checks comm messages of widgets, from a session or from a page: both may be hostile."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Literal

from sandbox_kernel.untrusted import ContentRefused
from sandbox_kernel.untrusted.json_value import check_json
from sandbox_kernel.util.values import dataclass
from sandbox_kernel.util.wire import BadMessage, check

COMM = "application/vnd.sandbox-kernel.comm+json"
#: The only target: everything else is for the kernel's own comms.
TARGET = "jupyter.widget"
MAX_BUFFERS = 64
#: The largest message of a session: its JSON, and its buffers. Widgets bring their program in their state: Plotly 5 MB.
MAX_SESSION_JSON, MAX_SESSION_BUFFERS = 12 << 20, 12 << 20
#: The largest message of a page, as in ``relay.js``: servers of Jupyter close a connection that gets 10 MB at once.
MAX_PAGE_JSON, MAX_PAGE_BUFFERS = 1 << 20, 8 << 20

_COMM_ID = re.compile(r"[0-9a-f-]{1,64}\Z")
_MESSAGE_ID = re.compile(r"[0-9a-z-]{1,40}\Z")


@dataclass(frozen=True, kw_only=True)
class CommMessage:
    """One comm message. ``message_id`` is that of the page's message, or of the one that a session answers."""

    kind: str
    comm_id: str
    data: Mapping[str, object]
    metadata: Mapping[str, object]
    message_id: str = ""
    buffers: tuple[bytes, ...] = ()
    #: The characters of its data and metadata as JSON.
    characters: int = 0

    @property
    def size(self) -> int:
        """Its bytes when it is sent."""
        return self.characters + sum(map(len, self.buffers))

    @property
    def kept_size(self) -> int:
        """The most bytes that it takes while it waits: ``[]`` has two characters and is an object of 64 bytes."""
        return 32 * self.characters + sum(map(len, self.buffers))

    def for_page(self) -> dict[str, object]:
        """Return the message without its buffers, as a page gets it."""
        return {
            "msg_type": self.kind,
            "comm_id": self.comm_id,
            "target_name": TARGET,
            "data": self.data,
            "metadata": self.metadata,
            "parent_id": self.message_id,
        }

    def for_session(self) -> dict[str, object]:
        """Return the message as the worker of a session gets it."""
        packed = [base64.b64encode(part).decode() for part in self.buffers]
        return {"comm_id": self.comm_id, "data": self.data, "msg_id": self.message_id, "buffers": packed}


@dataclass
class _Comm:
    """A message as both sides send it."""

    msg_type: Literal["comm_open", "comm_msg", "comm_close"]
    comm_id: str
    data: dict[str, object]
    metadata: dict[str, object] | None = None
    target_name: object = None
    #: The page's message, or the one that a session answers.
    msg_id: object = None
    parent_id: object = None
    buffers: list[str] = field(default_factory=list)


def comm_of_session(value: object) -> CommMessage:
    """Return a message that a session sent; raises ``ContentRefused`` if it is none, or too large."""
    found = _declared(value)
    if sum(map(len, found.buffers)) > MAX_SESSION_BUFFERS * 4 // 3:
        raise ContentRefused(f"its buffers are larger than {MAX_SESSION_BUFFERS >> 20} MB")
    try:
        parts = tuple(base64.b64decode(part, validate=True) for part in found.buffers)
    except (binascii.Error, ValueError):
        raise ContentRefused("its buffers are malformed") from None
    return _from_inside(found, found.parent_id, parts)


def comm_of_kernel(
    kind: str, content: Mapping[str, object], metadata: object, buffers: Sequence[bytes], parent_id: str
) -> CommMessage:
    """Return a message that a wrapped kernel sent; raises ``ContentRefused`` if it is none, or too large."""
    # What the gate keeps is sent again later, so it must be JSON that can be sent.
    plain = {"data": check_json(content.get("data"), MAX_SESSION_JSON), "metadata": check_json(metadata)}
    return _from_inside(_declared({**content, **plain, "msg_type": kind}), parent_id, tuple(buffers))


def comm_of_page(value: object, buffers: Sequence[object]) -> CommMessage:
    """Return a message that a page sent; raises ``ContentRefused`` if it is none, or too large."""
    found = _declared(value)
    if found.msg_type != "comm_msg":
        raise ContentRefused("a page only sends messages of comms that are open")
    parts = tuple(bytes(part) for part in buffers if isinstance(part, bytes | bytearray | memoryview))
    plain = check(check_json(found.data, MAX_PAGE_JSON), dict[str, object])  # what is no JSON cannot be sent on
    return _bounded(replace(found, data=plain, metadata=None), found.msg_id, parts, MAX_PAGE_BUFFERS, MAX_PAGE_JSON)


def _declared(value: object) -> _Comm:
    try:
        found = check(value, _Comm)
    except BadMessage as error:
        raise ContentRefused(f"it is no comm message: {error}") from None
    if not _COMM_ID.match(found.comm_id):
        raise ContentRefused("its comm id is malformed")
    return found


def _from_inside(found: _Comm, parent_id: object, buffers: tuple[bytes, ...]) -> CommMessage:
    if found.msg_type == "comm_open" and found.target_name != TARGET:
        raise ContentRefused(f"only comms of {TARGET} reach the page")
    return _bounded(found, parent_id, buffers, MAX_SESSION_BUFFERS, MAX_SESSION_JSON)


def _bounded(found: _Comm, name: object, buffers: tuple[bytes, ...], most: int, most_text: int) -> CommMessage:
    if len(buffers) > MAX_BUFFERS or sum(map(len, buffers)) > most:
        raise ContentRefused(f"its buffers are larger than {most >> 20} MB")
    metadata = found.metadata or {}
    characters = len(json.dumps([found.data, metadata]))
    if characters > most_text:
        raise ContentRefused(f"it is larger than {most_text >> 20} MB")
    return CommMessage(
        kind=found.msg_type,
        comm_id=found.comm_id,
        data=found.data,
        metadata=metadata,
        message_id=name if isinstance(name, str) and _MESSAGE_ID.match(name) else "",
        buffers=buffers,
        characters=characters,
    )
