"""A guest's fetch: asked of the host, over the one listening socket of the jail, which the host serves.

The guest sends a request as JSON and reads the response back, as JSON too (``net/guest_fetch/fetch_json.py`` on the
host says which). The three imports of the module ``sandbox`` are the seed's own, so that guests made for it run here.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable

import wasmtime

MODULE = "sandbox"
#: The gate writes here where the host listens; without it there is no network.
WHERE = "http_proxy"
MOST_REQUEST_BYTES = 16 << 20
MOST_RESPONSE_BYTES = 96 << 20

_OK, _BAD, _DISABLED = 0, -1, -2
#: How often a fetch looks whether it was interrupted.
_SLICE_S = 0.05


class NoNetwork(Exception):
    """The policy lets nothing out."""


class Stopped(Exception):
    """The program was interrupted while it waited."""


def never() -> bool:
    """Whoever runs alone is stopped by ending the process."""
    return False


def ask_host(request: bytes, stopped: Callable[[], bool] = never) -> bytes:
    """Send a request and wait for the response; an ``OSError`` means that the host has hung up."""
    where = os.environ.get(WHERE, "")
    if not where:
        raise NoNetwork
    host, _, port = where.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(len(request).to_bytes(4, "big") + request)
        connection.settimeout(_SLICE_S)
        size = int.from_bytes(_receive(connection, 4, stopped), "big")
        if size > MOST_RESPONSE_BYTES:
            raise ConnectionError("the response is too large")
        return _receive(connection, size, stopped)


def _receive(connection: socket.socket, size: int, stopped: Callable[[], bool]) -> bytes:
    data = bytearray()
    while len(data) < size:
        try:
            part = connection.recv(min(size - len(data), 1 << 20))
        except TimeoutError:
            if stopped():
                raise Stopped from None
            continue
        if not part:
            raise ConnectionError("the host broke the exchange off")
        data += part
    return bytes(data)


def is_request(data: bytes) -> bool:
    """Whether this is JSON with a URL at all; what else is wrong with it the host says in its response."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and isinstance(document.get("url"), str)


def define_fetch(linker: wasmtime.Linker) -> None:
    """Offer the three functions; they are there without network too, and say so when they are called."""
    response: bytes | None = None
    i32 = wasmtime.ValType.i32()

    def fetch(caller: wasmtime.Caller, address: int, size: int) -> int:
        nonlocal response
        response = None
        memory = caller.get("memory")
        if not isinstance(memory, wasmtime.Memory) or address < 0 or not 0 <= size <= MOST_REQUEST_BYTES:
            return _BAD
        if address + size > memory.data_len(caller):
            return _BAD
        request = bytes(memory.read(caller, address, address + size))
        if not is_request(request):
            return _BAD
        try:
            response = ask_host(request)
        except NoNetwork:
            return _DISABLED
        except OSError as error:
            response = failed(str(error))
        return _OK

    def response_len(_caller: wasmtime.Caller) -> int:
        return len(response or b"")

    def response_read(caller: wasmtime.Caller, address: int, size: int) -> int:
        memory = caller.get("memory")
        if not isinstance(memory, wasmtime.Memory) or response is None or address < 0 or size < 0:
            return _BAD
        part = response[:size]
        if address + len(part) > memory.data_len(caller):
            return _BAD
        memory.write(caller, part, address)
        return len(part)

    for name, parameters, function in (
        ("__sandbox_fetch", [i32, i32], fetch),
        ("__sandbox_fetch_response_len", [], response_len),
        ("__sandbox_fetch_response_read", [i32, i32], response_read),
    ):
        linker.define_func(MODULE, name, wasmtime.FuncType(parameters, [i32]), function, access_caller=True)


def failed(message: str) -> bytes:
    """The response to a request that never reached the host's client."""
    document = {"status": 0, "headers": {}, "body": "", "body_b64": "", "ok": False, "error": message}
    return json.dumps(document).encode("ascii")
