"""The HTTP messages of the egress proxy: parses requests, builds forwarded heads and refusals.

h11 reads and writes the messages. Heads and the framing of bodies are always rebuilt, never forwarded as they came, so
that two servers cannot read one byte stream as different requests.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import h11

from sandbox_kernel.errors import FetchError
from sandbox_kernel.model import Violation
from sandbox_kernel.net.client.fetch_messages import MAX_HEADERS, Headers, forwardable
from sandbox_kernel.net.rules.refusal import FetchRefused, refused
from sandbox_kernel.net.rules.targets import Target, parse_endpoint, parse_url

ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"

#: Most characters of an error about bytes that are not HTTP; h11 quotes all of them.
_MOST_QUOTED = 200
_HEAD_END = re.compile(rb"\n\r?\n")
_STATUS_WORDS = {403: "Forbidden", 502: "Bad Gateway", 504: "Gateway Timeout"}
_HOP_BY_HOP = frozenset(
    (
        "connection",
        "keep-alive",
        "proxy-connection",
        "proxy-authenticate",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)


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
    """Parse a request head. ``inside`` is the target of the tunnel that it came through, if any.

    Raises ``FetchRefused`` for a request that is not valid for a proxy.
    """
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


def check_lines(head: bytes | bytearray) -> None:
    """Refuse a head with too many lines before it is parsed: parsing a line costs more than sending it."""
    end = _HEAD_END.search(head)
    if head.count(b"\n", 0, end.end() if end else len(head)) > MAX_HEADERS + 2:
        raise malformed(f"a request head has more than {MAX_HEADERS} headers")


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
    headers = [(name, value) for name, value in event.headers if name.decode("latin-1").lower() not in _HOP_BY_HOP]
    return h11.Response(
        status_code=event.status_code, headers=[*headers, (b"Connection", b"close")], reason=event.reason
    )


def refusal_reply(violation: Violation) -> bytes:
    """Return the 403 reply to a refused request."""
    advice = f"\nto allow it: {violation.remedy}" if violation.remedy else ""
    text = f"the sandbox refused {violation.subject}: {violation.reason}{advice}\n"
    phrase = f"refused by the sandbox ({violation.rule}) {violation.reason}"
    return _reply(403, f"{phrase}; {violation.remedy}" if violation.remedy else phrase, text, violation.rule)


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
