"""The one order that a program of ours gets while it waits in its jail; the gate passes it on."""

from __future__ import annotations

import json
import os
import socket
import struct
from dataclasses import dataclass

from ...gate.wire import receive_descriptors


@dataclass(frozen=True)
class Order:
    """What to do, as the program's arguments say it, where, and with which open files."""

    argv: list[str]
    cwd: str
    env: dict[str, str]
    descriptors: list[int]


def receive_order(number: int) -> Order:
    """Wait for it on this descriptor; the process ends when nobody needs it any more."""
    with socket.socket(fileno=number) as sock:
        (size,) = struct.unpack(">I", _receive(sock, 4))
        given = json.loads(_receive(sock, size))
        return Order(given["argv"], given["cwd"], given["env"], receive_descriptors(sock, given["descriptors"]))


def _receive(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = sock.recv(size - len(data))
        if not part:
            os._exit(0)
        data += part
    return data
