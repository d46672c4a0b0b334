"""Programs of ours that wait in their jail for one order, which the gate passes on.

``wait`` is the process that becomes the worker of a WebAssembly session. The gate starts it when the jail is made, so
that opening or forking a session does not wait for the engine and the module. Checkpoints are forks of this process, so
nothing here may start a thread. The embedder of single runs waits in ``run.py``.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import struct
import sys
from dataclasses import dataclass

import wasmtime

from ..gate.wire import receive_descriptors
from .host_line import HostLine

TYPE_CHECKING = False


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


#: The descriptor of a waiting program's channel to the host.
_CHANNEL = 3


def wait(order: int, arguments: list[str]) -> None:
    """Load the guest, wait for the plan of a session, and serve the session; never returns.

    The arguments are the name of the engine's module, which has ``load`` and ``make``, and the argument of ``load``.
    """
    from ..session.worker import Worker

    name, known = arguments
    engine = importlib.import_module(name)
    try:
        loaded = engine.load(json.loads(known))
        given = receive_order(order)
        nothing = os.open("/dev/null", os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.chdir(given.cwd)
        os.environ.clear()
        os.environ.update(given.env)
        plan = json.loads(given.argv[0])
        made = engine.make(loaded, plan, given.descriptors[0] if given.descriptors else None)
        if given.line is not None:
            made.offer(given.line)
    except wasmtime.WasmtimeError as error:
        print(error, file=sys.stderr)
        os._exit(125)
    Worker(_CHANNEL, made).serve()
