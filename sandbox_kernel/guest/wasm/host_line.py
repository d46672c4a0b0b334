"""What a program of ours in a jail gets from its host: its one order, and the line to host functions.

The gate starts such a program when the jail is made and passes the order on later. ``wait`` is the process that
becomes the worker of a WebAssembly session; the embedder of single runs waits in ``run.py``. Checkpoints are forks of
this process, so nothing here may start a thread.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import sys
from dataclasses import dataclass

import wasmtime

from ..functions.caller import Caller, CallStopped
from ..functions.calling import HostError
from ..gate.wire import receive_descriptors, receive_frame
from .plan import GuestPlan, SessionPlan, read_fields

#: What a letter of Python begins with that is a call of a host function, and the letter that asks for an order;
#: ``inside/cell_boot.py`` has both too.
CALL, NEXT = b"host ", b'{"op": "next"}'


class HostLine:
    """Sends one guest's messages through the call socket; ``listing`` has name, signature and text of each function."""

    def __init__(self, call_socket: int, listing: list[list[str]]) -> None:
        self.listing = listing
        os.set_inheritable(call_socket, False)
        self.caller = Caller(call_socket)

    def answer(self, message: bytes) -> bytes:
        """Return the host's answer to a message of the guest, or an error in its place."""
        try:
            return self.caller.exchange(message)
        except HostError as error:
            return failed(error.type, error.message)
        except CallStopped:
            return failed("KeyboardInterrupt", "")
        except OSError as error:
            return failed("ConnectionLost", f"the call did not reach the host: {error}")


def failed(kind: str, message: str) -> bytes:
    """Return the answer to a call that did not reach the host."""
    return json.dumps({"error": {"type": kind, "message": message}}).encode()


def javascript_source() -> str:
    """Return the program that makes the object ``host``."""
    functions = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "functions")
    with open(os.path.join(functions, "host_object.js"), encoding="utf-8") as file:
        return file.read()


@dataclass(frozen=True)
class Order:
    """The order of a program that waited for it."""

    argv: list[str]
    cwd: str
    env: dict[str, str]
    descriptors: list[int]
    #: The way to host functions; None for a program that has none.
    line: HostLine | None


def receive_order(number: int) -> Order:
    """Wait for the order on this descriptor; exits the process when the gate closes it."""
    with socket.socket(fileno=number) as sock:
        try:
            given = json.loads(receive_frame(sock))
        except EOFError:
            os._exit(0)
        descriptors = receive_descriptors(sock, given["descriptors"])
    line = HostLine(descriptors.pop(), given["functions"]) if given["calls"] else None
    return Order(given["argv"], given["cwd"], given["env"], descriptors, line)


#: The descriptor of a waiting program's channel to the host.
_CHANNEL = 3


def wait(order: int, arguments: list[str]) -> None:
    """Load the guest by the engine's name and its plan; wait for the plan of a session and serve it."""
    from ..session.worker import Worker

    name, known = arguments
    module = importlib.import_module(name)
    try:
        engine = module.load(read_fields(GuestPlan, json.loads(known)))
        given = receive_order(order)
        nothing = os.open("/dev/null", os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.chdir(given.cwd)
        os.environ.clear()
        os.environ.update(given.env)
        plan = read_fields(SessionPlan, json.loads(given.argv[0]))
        engine.start(plan, given.descriptors[0] if given.descriptors else None)
        if given.line is not None:
            engine.offer(given.line)
    except wasmtime.WasmtimeError as error:
        print(error, file=sys.stderr)
        os._exit(125)
    Worker(_CHANNEL, engine).serve()
