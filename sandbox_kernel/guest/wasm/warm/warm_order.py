"""Receives the one order of a program of ours that waits in its jail; the gate passes the order on."""

from __future__ import annotations

import json
import os
import socket
import struct
from dataclasses import dataclass

from ...gate.wire import receive_descriptors
from ..host_line import HostLine


@dataclass(frozen=True)
class Order:
    """The order: the program's arguments, its working directory and environment, and open descriptors."""

    argv: list[str]
    cwd: str
    env: dict[str, str]
    descriptors: list[int]
    #: The way to host functions; None for a program that has none.
    line: HostLine | None


def receive_order(number: int) -> Order:
    """Wait for the order on this descriptor; exits the process when the gate closes it."""
    with socket.socket(fileno=number) as sock:
        (size,) = struct.unpack(">I", _receive(sock, 4))
        given = json.loads(_receive(sock, size))
        descriptors = receive_descriptors(sock, given["descriptors"])
    line = HostLine(descriptors.pop(), given["functions"]) if given["hatch"] else None
    return Order(given["argv"], given["cwd"], given["env"], descriptors, line)


def _receive(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = sock.recv(size - len(data))
        if not part:
            os._exit(0)
        data += part
    return data
