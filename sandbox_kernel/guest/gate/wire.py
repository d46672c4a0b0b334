"""What a gate and its host say to each other: orders come in ``marshal``, answers go out as JSON.

Stdlib only, Python 3.8 or later.
"""

from __future__ import annotations

import _socket as socket
import marshal
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Sequence, Tuple

#: Largest order that is taken; the host sends files in it.
MAX_FRAME = 1 << 30


def receive(sock: socket.socket, size: int) -> bytes:
    """Exactly this many bytes, or EOFError when the host is gone."""
    parts = []
    while size:
        part = sock.recv(min(size, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def receive_order(sock: socket.socket) -> Tuple[Dict[str, Any], List[bytes]]:
    """One order: a header and the blobs that it counts. It comes from the host, which is trusted here."""
    (size,) = struct.unpack(">I", receive(sock, 4))
    if size > MAX_FRAME:
        raise EOFError
    order = marshal.loads(receive(sock, size))  # noqa: S302
    order["descriptors"] = receive_descriptors(sock, order.get("descriptors", 0))
    return order, [receive(sock, length) for length in order["blobs"]]


def receive_descriptors(sock: socket.socket, count: int) -> List[int]:
    """As many open files as were announced, which come with one byte of their own."""
    if not count:
        return []
    data, ancillary, _, _ = sock.recvmsg(1, socket.CMSG_SPACE(4 * count), socket.MSG_CMSG_CLOEXEC)
    found = [fd for _, kind, raw in ancillary if kind == socket.SCM_RIGHTS for (fd,) in struct.iter_unpack("i", raw)]
    if not data or len(found) != count:
        raise EOFError
    return found


def send_descriptors(sock: socket.socket, descriptors: List[int]) -> None:
    """Hand over open files with one byte; nothing when there are none."""
    if descriptors:
        packed = struct.pack(f"{len(descriptors)}i", *descriptors)
        sock.sendmsg([b"\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, packed)])


def send(sock: socket.socket, message: Dict[str, Any]) -> None:
    """One message to the host; it reads as if we were hostile, so keep it small and plain."""
    data = plain_json(message).encode()
    sock.sendall(struct.pack(">I", len(data)) + data)


def plain_json(value: object) -> str:
    """JSON without ``json``: nearly all that we say is numbers and our own words."""
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{key}": {plain_json(item)}' for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(plain_json, value)) + "]"
    if isinstance(value, str):
        if not value.replace("-", "_").replace(" ", "_").replace("_", "a").isalnum():
            import json

            return json.dumps(value)
        return '"' + value + '"'
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return repr(value)


def send_frame(sock: socket.socket, data: bytes, descriptors: Sequence[int] = ()) -> None:
    """One message with its length, to a program of ours that waits; if it died meanwhile, its exit code says so."""
    try:
        sock.sendall(struct.pack(">I", len(data)) + data)
        send_descriptors(sock, list(descriptors))
    except OSError:
        pass
    sock.close()
