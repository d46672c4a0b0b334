"""Passes a guest's fetch to the host, over the jail's listening socket, which the host serves.

Request and response are JSON (``net/guest_fetch.py`` on the host defines them). The three imports of the
module ``sandbox`` have the names of the seed project, so that guests made for it run here.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable

import wasmtime

MODULE = "sandbox"
#: The environment variable in which the gate puts the host's address; without it there is no network.
WHERE = "http_proxy"
MOST_REQUEST_BYTES = 16 << 20
MOST_RESPONSE_BYTES = 96 << 20

_OK, _BAD, _DISABLED = 0, -1, -2
#: How often a waiting fetch checks for an interrupt, in seconds.
_SLICE_S = 0.05


class NoNetwork(Exception):
    """Raised when the policy allows no network."""


class Stopped(Exception):
    """Raised when the program is interrupted while it waits."""


def never() -> bool:
    """Return False: a single run is stopped by ending its process, not by an interrupt."""
    return False


def ask_host(request: bytes, stopped: Callable[[], bool] = never) -> bytes:
    """Send a request to the host and return its response; raises ``OSError`` when the host closes the connection."""
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
            raise ConnectionError("the host closed the connection")
        data += part
    return bytes(data)


def is_request(data: bytes) -> bool:
    """Whether this is JSON with a URL; the host checks the rest and reports errors in its response."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and isinstance(document.get("url"), str)


def define_fetch(linker: wasmtime.Linker) -> None:
    """Define the three fetch functions for a guest; without network they exist too and return an error."""
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
    """Return the response to a request that did not reach the host."""
    document = {"status": 0, "headers": {}, "body": "", "body_b64": "", "ok": False, "error": message}
    return json.dumps(document).encode("ascii")
