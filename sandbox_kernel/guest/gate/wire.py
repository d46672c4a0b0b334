"""The wire format between a gate and the host: orders come in ``marshal`` format, answers go out as JSON.

The command ``host`` imports this for each call, so the C modules stand for ``socket`` and ``struct``.
"""

from __future__ import annotations

import _socket as socket
import _struct as struct
import marshal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Sequence, Tuple

#: The largest order in bytes; it contains files.
MAX_FRAME = 1 << 30


def receive(sock: socket.socket, size: int) -> bytes:
    """Read exactly this many bytes; raises ``EOFError`` when the host is gone."""
    parts = []
    while size:
        part = sock.recv(min(size, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def frame(data: bytes) -> bytes:
    """Return a message as every socket of ours carries it: its length in four bytes, then its bytes."""
    return struct.pack(">I", len(data)) + data


def frame_end(data: bytes | bytearray) -> int:
    """Return where the first frame ends; 0 when it is not whole. Its message begins at 4."""
    end = 4 + struct.unpack(">I", data[:4])[0] if len(data) >= 4 else 0
    return end if end <= len(data) else 0


def receive_frame(sock: socket.socket) -> bytes:
    """Read one message; raises ``EOFError`` when the host is gone, or it is too large."""
    (size,) = struct.unpack(">I", receive(sock, 4))
    if size > MAX_FRAME:
        raise EOFError
    return receive(sock, size)


def receive_order(sock: socket.socket) -> Tuple[Dict[str, Any], List[bytes]]:
    """Read one order: a header, and the blobs that it announces. It comes from the host, which is trusted here."""
    order = marshal.loads(receive_frame(sock))  # noqa: S302
    order["descriptors"] = receive_descriptors(sock, order.get("descriptors", 0))
    return order, [receive(sock, length) for length in order["blobs"]]


def receive_descriptors(sock: socket.socket, count: int) -> List[int]:
    """Receive ``count`` descriptors, which are sent along with one byte."""
    if not count:
        return []
    data, ancillary, _, _ = sock.recvmsg(1, socket.CMSG_SPACE(4 * count), socket.MSG_CMSG_CLOEXEC)
    found = [fd for _, kind, raw in ancillary if kind == socket.SCM_RIGHTS for (fd,) in struct.iter_unpack("i", raw)]
    if not data or len(found) != count:
        raise EOFError
    return found


def send_descriptors(sock: socket.socket, descriptors: Sequence[int], data: bytes = b"\0") -> None:
    """Send descriptors along with one byte, or other data; sends nothing when there are none."""
    if descriptors:
        packed = struct.pack(f"{len(descriptors)}i", *descriptors)
        sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, packed)])


def send(sock: socket.socket, message: Dict[str, Any]) -> None:
    """Send one message to the host."""
    sock.sendall(framed(message))


def framed(message: Dict[str, Any]) -> bytes:
    """Return a message to the host, which checks it as if we were hostile, so it is small and plain."""
    return frame(plain_json(message).encode())


def plain_json(value: object) -> str:
    """Return a value as JSON. Imports ``json``, which is slow, only for texts that need escapes."""
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
    """Send one frame to a waiting program of ours and close the socket; if the program died, its exit code tells."""
    try:
        sock.sendall(frame(data))
        send_descriptors(sock, descriptors)
    except OSError:
        pass
    sock.close()
