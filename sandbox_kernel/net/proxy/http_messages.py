"""The HTTP messages of the egress proxy: parses requests, builds forwarded heads and refusals.

h11 reads and writes the messages. Heads and the framing of bodies are always rebuilt, never forwarded as they came, so
that two servers cannot read one byte stream as different requests.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass

import h11

from sandbox_kernel.errors import FetchError
from sandbox_kernel.model import Violation
from sandbox_kernel.net.fetch_messages import CONNECTION_HEADERS, MAX_HEADERS, Headers, forwardable
from sandbox_kernel.net.fetch_policy import FetchRefused, refused
from sandbox_kernel.net.proxy.relay import ClientGone, Link
from sandbox_kernel.net.targets import Target, parse_endpoint, parse_url

ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"

#: Most characters of an error about bytes that are not HTTP; h11 quotes all of them.
_MOST_QUOTED = 200
_HEAD_END = re.compile(rb"\n\r?\n")
_STATUS_WORDS = {403: "Forbidden", 502: "Bad Gateway", 504: "Gateway Timeout"}
#: What of a response is not for the program: what concerns one connection, and the header of our own refusals.
_NOT_PASSED_ON = (CONNECTION_HEADERS - {"content-length"}) | {"x-sandbox-rule"}


@dataclass(frozen=True)
class ProxyRequest:
    """One request to the proxy. For a tunnel, headers and path are unused."""

    method: str
    target: Target
    tunnel: bool
    headers: Headers = ()

    @property
    def subject(self) -> str:
        """The name of this request in a violation."""
        return f"{self.method} {self.target.endpoint if self.tunnel else self.target.url}"[:300]

    def head_for_upstream(self) -> h11.Request:
        """Return the head for the server: path only, our own Host header, and no second request on the connection."""
        named = [("Host", self.target.authority), *self.headers, ("Connection", "close")]
        # Latin-1 keeps the bytes of values that are not ASCII.
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in named]
        return h11.Request(method=self.method, target=self.target.path, headers=headers)


def read_request(event: h11.Request, inside: Target | None = None) -> ProxyRequest:
    """Parse a request head; ``inside`` is the target of its tunnel, if any. Raises ``FetchRefused``."""
    method, url = event.method.decode("ascii"), event.target.decode("ascii")
    headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in event.headers)
    names = {name.lower() for name, _ in headers}
    if event.http_version not in (b"1.0", b"1.1") or method == "PRI":
        raise malformed(f"HTTP/{event.http_version.decode('ascii')} is not supported, only HTTP/1.1")
    framing = names & {"content-length", "transfer-encoding"}
    if len(framing) == 2:
        raise malformed("a request with both Content-Length and Transfer-Encoding has two lengths")
    if method == "CONNECT":
        if inside is not None or framing:
            raise malformed("CONNECT inside a tunnel, or with a body")
        return ProxyRequest(method, _parsed(parse_endpoint, url), True)
    if inside is not None:
        if not url.startswith("/"):
            raise malformed("a request inside a tunnel must name a path, not a URL")
        target = _parsed(parse_url, Target("http", inside.host, inside.port, url).url)
    elif url.startswith("/") or url == "*":
        raise malformed("this is a proxy: requests need a whole URL; set http_proxy and https_proxy")
    else:
        # An https URL without CONNECT is from a program that leaves TLS to this proxy, as guests in WebAssembly do.
        target = _parsed(parse_url, url)
    length = next((value for name, value in headers if name.lower() == "content-length"), None)
    framed = forwardable(headers)
    if length is not None:
        framed += (("Content-Length", length),)
    elif framing:
        framed += (("Transfer-Encoding", "chunked"),)
    return ProxyRequest(method, target, False, framed)


def _parsed(parse: Callable[[str], Target], text: str) -> Target:
    try:
        return parse(text)
    except FetchError as error:
        raise refused(error.rule, ascii(text)[:200], str(error)) from None


def malformed(reason: str) -> FetchRefused:
    """Return the refusal of an invalid proxy request; a long ``reason`` is cut."""
    return refused("malformed_request", "a request to the egress proxy", reason[:_MOST_QUOTED])


def head_for_client(event: h11.Response) -> h11.Response:
    """Return the head of a response for the program: end-to-end headers, and ``Connection: close``."""
    headers = [(name, value) for name, value in event.headers if name.decode("latin-1").lower() not in _NOT_PASSED_ON]
    return h11.Response(
        status_code=event.status_code, headers=[*headers, (b"Connection", b"close")], reason=event.reason
    )


def refusal_reply(violation: Violation) -> bytes:
    """Return the 403 reply to a refused request."""
    # In the status line, which is cut, the reason stands first.
    phrase = f"refused by the sandbox ({violation.rule}) {violation.reason}"
    phrase += f"; {violation.remedy}" if violation.remedy else ""
    return _reply(403, phrase, f"sandbox: {violation.sentence}\n", violation.rule)


def failure_reply(error: FetchError) -> bytes:
    """Return the 502 or 504 reply to a request that was allowed and failed."""
    status = 504 if error.rule in ("connection_timeout", "request_timeout") else 502
    return _reply(status, f"{_STATUS_WORDS[status]}: {error}", f"{error}\n", error.rule)


def _reply(status: int, phrase: str, text: str, rule: str) -> bytes:
    """Build a reply with the reason in the status line: for CONNECT, most clients show only that."""
    body = text.encode("utf-8", "replace")
    words = re.sub(r"[^\x20-\x7e]", "?", phrase)[:300]
    head = (
        f"HTTP/1.1 {status} {words}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        f"X-Sandbox-Rule: {rule}\r\nConnection: close\r\n\r\n"
    )
    return head.encode("ascii") + body


# One plain HTTP request through the proxy: reads its head, sends it rebuilt to the server, returns the response.


async def read_head(link: Link, http: h11.Connection) -> h11.Request:
    """Read the next head within its limits. Raises ``FetchRefused``, or ``ClientGone`` for a closed connection."""
    limits = link.rules.limits
    head = bytearray(http.trailing_data[0])
    started = bool(head)
    try:
        async with asyncio.timeout(limits.head_timeout_s):
            while True:
                # Before it is parsed: parsing a line costs more than sending it.
                end = _HEAD_END.search(head)
                if head.count(b"\n", 0, end.end() if end else len(head)) > MAX_HEADERS + 2:
                    raise malformed(f"a request head has more than {MAX_HEADERS} headers")
                event = http.next_event()
                if isinstance(event, h11.Request):
                    return event
                data = await link.reader.read(8192) if event is h11.NEED_DATA else b""
                if not data:
                    raise ClientGone
                started = True
                head += data
                http.receive_data(data)
    except TimeoutError:
        if not started:
            raise ClientGone from None
        raise malformed(f"the request head took longer than {limits.head_timeout_s:g} s") from None
    except h11.RemoteProtocolError as error:
        raise malformed(str(error)) from None


async def exchange(link: Link, http: h11.Connection, request: ProxyRequest) -> None:
    """Send one request to the server and its response to the program. Bytes after the request are not read."""
    onward = h11.Connection(h11.CLIENT, max_incomplete_event_size=64 * 1024)
    await link.send(onward.send(request.head_for_upstream()), far=True)
    try:
        await link.both(_upload(link, http, onward), _download(link, http, onward), ends_with_download=True)
    except h11.ProtocolError as error:
        raise FetchError(f"the exchange with {request.target.endpoint} failed: {str(error)[:200]}") from None
    if not link.answered:
        idle = link.rules.limits.idle_timeout_s
        raise FetchError(f"{request.target.endpoint} did not answer within {idle:g} s", rule="request_timeout")


async def _upload(link: Link, http: h11.Connection, onward: h11.Connection) -> None:
    while True:
        await asyncio.sleep(0)  # what has arrived may be thousands of pieces, and others wait
        try:
            event = http.next_event()
        except h11.RemoteProtocolError as error:
            raise malformed(str(error)) from None
        if event is h11.NEED_DATA:
            if http.they_are_waiting_for_100_continue:
                go_on = h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue")
                await link.send(http.send(go_on))
            http.receive_data(await link.receive())
            continue
        # Trailers of the program are dropped.
        piece = event if isinstance(event, h11.Data) else h11.EndOfMessage()
        try:
            await link.send(onward.send(piece), far=True)
        except OSError:
            # A server may respond and close before it has read the whole request; its response is still delivered.
            return
        if isinstance(piece, h11.EndOfMessage):
            return


async def _download(link: Link, http: h11.Connection, onward: h11.Connection) -> None:
    while True:
        await asyncio.sleep(0)
        event = onward.next_event()
        if event is h11.NEED_DATA:
            onward.receive_data(await link.receive(far=True))
        elif isinstance(event, h11.Response):
            link.answered = True
            await link.send(http.send(head_for_client(event)))
        elif isinstance(event, h11.Data):
            await link.send(http.send(event))
        elif isinstance(event, h11.EndOfMessage):
            await link.send(http.send(h11.EndOfMessage()))
            return
        elif not isinstance(event, h11.InformationalResponse):
            raise h11.RemoteProtocolError("it closed the connection")
