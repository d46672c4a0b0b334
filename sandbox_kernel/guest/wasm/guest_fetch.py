"""Fetches of guests: HTTP requests to the proxy of the jail, which every program in a jail uses.

The proxy decides what may be reached, and speaks TLS with the server: a request with an ``https`` address comes to it
whole. Redirects are followed here, and each one is a request of its own to the proxy. The three imports of the module
``sandbox`` have the names of the seed project, so that guests made for it run here. Their request is JSON, ``{url,
method, headers, body | body_b64}``, and so is the response: ``{status, headers, body, body_b64, ok, error}``.
"""

from __future__ import annotations

import base64
import http.client
import io
import json
import os
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import wasmtime

MODULE = "sandbox"
#: The environment variable in which the gate puts the proxy's address; without it there is no network.
WHERE = "http_proxy"
#: The largest request of a guest, and the largest body of a response: the guest holds it in memory several times.
MOST_REQUEST_BYTES, MOST_BODY_BYTES = 16 << 20, 8 << 20
_MOST_REDIRECTS = 10
_OK, _BAD, _DISABLED = 0, -1, -2
#: How often a waiting fetch checks for an interrupt, in seconds.
_SLICE_S = 0.05
_SAFE = "%/:?@!$&'()*+,;=-._~[]|^{}#"
#: The header by which the proxy names the rule of a refusal.
_RULE = "X-Sandbox-Rule"
#: Headers that go along when a redirect leads to another origin; ``net/safe_client.py`` has them too.
FOLLOWING = ("accept", "accept-encoding", "accept-language", "content-language", "content-type", "range", "user-agent")


class NoNetwork(Exception):
    """Raised when the policy allows no network."""


class FetchFailed(Exception):
    """Raised when there is no response; the message is for the guest."""


@dataclass(frozen=True)
class Request:
    """A request of a guest."""

    url: str
    method: str = "GET"
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None

    @property
    def origin(self) -> tuple[str, str]:
        """Scheme and host with port of the address."""
        parts = urllib.parse.urlsplit(self.url)
        return parts.scheme, parts.netloc

    def redirected(self, status: int, location: str) -> Request:
        """Return the request that follows a redirect; others than ``FOLLOWING`` stay with their origin."""
        # Servers send UTF-8 in this header, which was read as Latin-1.
        raw = location.encode("latin-1").decode("utf-8", "replace")
        new = replace(self, url=_ascii(urllib.parse.urljoin(self.url, raw)))
        headers = self.headers
        if status not in (307, 308):
            new = replace(new, method="HEAD" if self.method == "HEAD" else "GET", body=None)
            headers = {name: value for name, value in headers.items() if not name.lower().startswith("content-")}
        if new.origin != self.origin:
            headers = {name: value for name, value in headers.items() if name.lower() in FOLLOWING}
        return replace(new, headers=headers)


@dataclass(frozen=True)
class Response:
    """A response; the names of headers are in lower case, and repeated ones are joined with commas."""

    status: int
    headers: dict[str, str]
    body: bytes


def read_request(data: bytes) -> Request:
    """Parse the request of a guest; raises ``ValueError``, or ``RecursionError``."""
    document = json.loads(data)
    if not isinstance(document, dict) or not isinstance(document.get("url"), str):
        raise ValueError("a request is an object with a url")
    method, headers = document.get("method") or "GET", document.get("headers") or {}
    body, coded = document.get("body"), document.get("body_b64")
    if not isinstance(headers, dict) or not all(isinstance(text, str) for text in (method, *headers.values())):
        raise ValueError("the method and the headers of a request are texts")
    if not all(text is None or isinstance(text, str) for text in (body, coded)):
        raise ValueError("the body of a request is a text; give bytes as body_b64")
    payload = base64.b64decode(coded, validate=True) if coded is not None else body.encode() if body else None
    return Request(document["url"], method, headers, payload)


def fetch(request: Request, stopped: Callable[[], bool] = bool) -> Response:
    """Send a request through the proxy and follow redirects; raises ``FetchFailed``, or ``NoNetwork``."""
    where = os.environ.get(WHERE, "")
    if not where:
        raise NoNetwork
    try:
        request = replace(request, url=_ascii(request.url))
        for _ in range(_MOST_REDIRECTS + 1):
            answer = _exchange(where.removeprefix("http://"), request, stopped)
            location = answer.getheader("Location")
            if answer.status not in (301, 302, 303, 307, 308) or not location:
                return _response(answer)
            request = request.redirected(answer.status, location)
    except http.client.InvalidURL as error:
        raise FetchFailed(f"invalid_url: {error}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise FetchFailed(f"the exchange with the proxy failed: {type(error).__name__}: {error}") from None
    raise FetchFailed(f"too_many_redirects: {request.url[:200]} redirects more than {_MOST_REDIRECTS} times")


def _ascii(url: str) -> str:
    if url.isascii():
        return url
    parts = urllib.parse.urlsplit(url)
    path, query = (urllib.parse.quote(text, safe=_SAFE) for text in (parts.path, parts.query))
    return urllib.parse.urlunsplit((parts.scheme, parts.netloc.encode("idna").decode(), path, query, ""))


def _exchange(where: str, request: Request, stopped: Callable[[], bool]) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(where)
    try:
        connection.request(request.method, request.url, request.body, {"Accept": "*/*", **request.headers})
        # The proxy serves one request for each connection. It is read to its end in slices, which can be stopped.
        connection.sock.settimeout(_SLICE_S)
        data = bytearray()
        while True:
            try:
                part = connection.sock.recv(1 << 18)
            except TimeoutError:
                if stopped():
                    raise FetchFailed("interrupted") from None
                continue
            data += part
            if not part:
                break
            if len(data) > 2 * MOST_BODY_BYTES:  # chunks have a frame around them
                raise _too_large()
    finally:
        connection.close()
    answer = http.client.HTTPResponse(_Received(bytes(data)), method=request.method)  # type: ignore[arg-type]
    answer.begin()
    if rule := answer.getheader(_RULE):
        raise FetchFailed(f"{rule}: {answer.read().decode('utf-8', 'replace').strip()}")
    return answer


def _response(answer: http.client.HTTPResponse) -> Response:
    headers: dict[str, str] = {}
    for name, value in answer.getheaders():
        key = name.lower()
        headers[key] = f"{headers[key]}, {value}" if key in headers else value
    body = answer.read()
    if len(body) > MOST_BODY_BYTES:
        raise _too_large()
    return Response(answer.status, headers, body)


def _too_large() -> FetchFailed:
    return FetchFailed(f"response_body_too_large: the response is larger than {MOST_BODY_BYTES} bytes")


class _Received:
    """Bytes that were received, for ``HTTPResponse``, which reads a socket."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self._data)


def define_fetch(linker: wasmtime.Linker) -> None:
    """Define the three fetch functions for a guest; without network they exist too and return an error."""
    response: bytes | None = None
    i32 = wasmtime.ValType.i32()

    def ask(caller: wasmtime.Caller, address: int, size: int) -> int:
        nonlocal response
        response = None
        memory = caller.get("memory")
        if not isinstance(memory, wasmtime.Memory) or address < 0 or not 0 <= size <= MOST_REQUEST_BYTES:
            return _BAD
        if address + size > memory.data_len(caller):
            return _BAD
        try:
            request = read_request(bytes(memory.read(caller, address, address + size)))
            response = _document(fetch(request), None)
        except NoNetwork:
            return _DISABLED
        except FetchFailed as error:
            response = _document(Response(0, {}, b""), str(error))
        except (ValueError, RecursionError):
            return _BAD
        return _OK

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
        ("__sandbox_fetch", [i32, i32], ask),
        ("__sandbox_fetch_response_len", [], lambda _caller: len(response or b"")),
        ("__sandbox_fetch_response_read", [i32, i32], response_read),
    ):
        linker.define_func(MODULE, name, wasmtime.FuncType(parameters, [i32]), function, access_caller=True)


def _document(response: Response, error: str | None) -> bytes:
    text, coded = response.body.decode("utf-8", "replace"), base64.b64encode(response.body).decode("ascii")
    document = {"status": response.status, "headers": response.headers, "body": text, "body_b64": coded}
    return json.dumps({**document, "ok": 200 <= response.status <= 299, "error": error}).encode("ascii")
