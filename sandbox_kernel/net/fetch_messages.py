"""Request and response of a fetch: values that check themselves when they are made."""

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
#: Headers of one connection, and those that the client sets itself. A guest's Host header could reach another site
#: at the same address; its framing headers could smuggle a second request.
CONNECTION_HEADERS = frozenset(
    (
        *("host", "connection", "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization"),
        *("te", "trailer", "transfer-encoding", "upgrade", "http2-settings", "content-length", "expect"),
    )
)


@dataclass(frozen=True, kw_only=True)
class FetchRequest:
    """A request of a guest or caller. Raises ``InvalidRequest`` when it is not well-formed."""

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
        """The body as bytes; empty when there is none."""
        assert not isinstance(self.body, str)
        return self.body or b""

    @property
    def header_list(self) -> Headers:
        """The headers in order, duplicates included."""
        assert isinstance(self.headers, tuple)
        return self.headers


@dataclass(frozen=True, kw_only=True)
class FetchResponse:
    """The complete response of a fetch. ``url`` is the last URL, reached through ``redirects``."""

    status: int
    headers: Headers
    body: bytes
    url: str
    redirects: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status <= 299

    @property
    def text(self) -> str:
        """The body decoded as UTF-8; invalid bytes become U+FFFD. ``body`` holds the exact bytes."""
        return self.body.decode("utf-8", "replace")

    def json(self) -> object:
        """Parse the body as JSON. Raises ``ValueError`` when it is not JSON."""
        return json.loads(self.body)

    def header(self, name: str) -> str | None:
        """Return one header by its name in any case; repeated headers are joined with commas."""
        values = [value for key, value in self.headers if key.lower() == name.lower()]
        return ", ".join(values) if values else None


def forwardable(headers: Headers) -> Headers:
    """Return the headers of a guest that may be forwarded: no connection headers, nor those that Connection names."""
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
