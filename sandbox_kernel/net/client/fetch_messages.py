"""What goes into a fetch and what comes out: plain values that check themselves."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sandbox_kernel.errors import InvalidRequest

Headers = tuple[tuple[str, str], ...]

MAX_HEADERS = 200
MAX_HEADER_BYTES = 64 * 1024

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,256}\Z")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*\Z")
#: Headers that speak about one connection, or that the client sets itself. A guest's Host would be a way to another
#: site behind the same address, its framing a way to smuggle a second request.
CONNECTION_HEADERS = frozenset(
    (
        "host",
        "connection",
        "keep-alive",
        "proxy-connection",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "http2-settings",
        "content-length",
        "expect",
    )
)


@dataclass(frozen=True, kw_only=True)
class FetchRequest:
    """A request as a guest or caller wrote it; one that exists is well-formed (``InvalidRequest`` otherwise)."""

    url: str
    method: str = "GET"
    headers: Mapping[str, str] | Iterable[tuple[str, str]] = ()
    body: bytes | str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.url, str):
            raise InvalidRequest(f"url must be text, got {self.url!r}; for example https://example.org/")
        if not isinstance(self.method, str) or not _TOKEN.match(self.method):
            raise InvalidRequest(f"method must be a word like GET or POST, got {self.method!r}")
        body: object = self.body
        if body is not None and not isinstance(body, bytes | str):
            raise InvalidRequest(f"body must be bytes, text or None, got {type(body).__name__}")
        try:
            payload = body.encode() if isinstance(body, str) else body
        except UnicodeEncodeError:
            raise InvalidRequest("body holds a lone surrogate, which has no UTF-8 form; give bytes") from None
        object.__setattr__(self, "method", self.method.upper())
        object.__setattr__(self, "headers", _checked(self.headers))
        object.__setattr__(self, "body", payload)

    @property
    def payload(self) -> bytes:
        """The body as bytes; empty where there is none."""
        assert not isinstance(self.body, str)
        return self.body or b""

    @property
    def header_list(self) -> Headers:
        """The headers in order, duplicates included."""
        assert isinstance(self.headers, tuple)
        return self.headers


@dataclass(frozen=True, kw_only=True)
class FetchResponse:
    """The answer to a fetch, whole and bounded. ``url`` is where it came from after ``redirects``."""

    status: int
    headers: Headers
    body: bytes
    url: str
    redirects: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Is the status a 2xx?"""
        return 200 <= self.status <= 299

    @property
    def text(self) -> str:
        """The body as UTF-8; what is not becomes U+FFFD. ``body`` holds the bytes as they came."""
        return self.body.decode("utf-8", "replace")

    def json(self) -> object:
        """The body as JSON; ``ValueError`` if it is not."""
        return json.loads(self.body)

    def header(self, name: str) -> str | None:
        """One header by name, in any case; repeated ones joined with a comma."""
        values = [value for key, value in self.headers if key.lower() == name.lower()]
        return ", ".join(values) if values else None


def forwardable(headers: Headers) -> Headers:
    """The headers of a guest that may travel on: none of the connection's, nor those its Connection header names."""
    named = {
        word.strip().lower() for name, value in headers if name.lower() == "connection" for word in value.split(",")
    }
    dropped = CONNECTION_HEADERS | named
    return tuple((name, value) for name, value in headers if name.lower() not in dropped)


def _checked(headers: object) -> Headers:
    if isinstance(headers, Mapping):
        headers = headers.items()
    if isinstance(headers, str | bytes) or not isinstance(headers, Iterable):
        raise InvalidRequest(f"headers must be a table of names and values, got {headers!r}")
    found: list[tuple[str, str]] = []
    for entry in headers:
        if not isinstance(entry, tuple | list) or len(entry) != 2:
            raise InvalidRequest(f"a header must be a name and a value, got {entry!r}")
        name, value = entry
        if not isinstance(name, str) or not _TOKEN.match(name):
            raise InvalidRequest(f"header name {name!r} is not a word of letters, digits and dashes")
        if not isinstance(value, str) or not _VALUE.match(value):
            raise InvalidRequest(f"value of header {name!r} holds a line break or another character that no header has")
        found.append((name, value.strip(" \t")))
    if len(found) > MAX_HEADERS or sum(len(name) + len(value) for name, value in found) > MAX_HEADER_BYTES:
        raise InvalidRequest(f"more than {MAX_HEADERS} headers or {MAX_HEADER_BYTES} bytes of them; send fewer")
    return tuple(found)
