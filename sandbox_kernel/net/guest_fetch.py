"""The only network access of a wasm guest: the host fetches on its behalf, one request for each connection.

The embedder inside the jail connects to the listening socket of its jail, sends one request and reads one response,
each a length in four bytes and then JSON. The guest itself has no socket: ``SafeClient`` checks redirects, headers and
bodies on the host before they leave or reach the guest.

The request is ``{url, method, headers, body | body_b64}``, the response ``{status, headers, body, body_b64, ok,
error}``. ``body`` is decoded text for guests that only handle text; ``body_b64`` holds the exact bytes. Every request
is hostile input: ``json.loads`` turns 16 MB of brackets into gigabytes of lists and blocks the whole process while it
does. A request is one object of strings with one object of headers in it; the parser here accepts only that, so
parsing costs no more than copying the text.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import json
import re
from collections.abc import Callable, Collection
from dataclasses import replace
from json.decoder import scanstring  # type: ignore[attr-defined]  # documented nowhere, and in every Python
from typing import TYPE_CHECKING, TypeVar

from sandbox_kernel.errors import FetchError, InvalidRequest, NetworkingDisabled, SandboxError
from sandbox_kernel.limits import MIB
from sandbox_kernel.net.client.fetch_messages import MAX_HEADERS, FetchRequest, FetchResponse
from sandbox_kernel.net.client.safe_client import SafeClient
from sandbox_kernel.net.proxy.jail_server import JailServer

if TYPE_CHECKING:
    from sandbox_kernel.model import Violation
    from sandbox_kernel.net.client.safe_client import SafeClient
    from sandbox_kernel.net.rules.fetch_policy import FetchPolicy


#: Largest response body for a guest: it holds the whole response in memory, as text and as base64.
MAX_GUEST_BODY_BYTES = 8 * MIB
#: Most connections at once. An honest embedder has one: a guest waits for each of its fetches.
MAX_GUEST_FETCHES = 4
#: Seconds that a request may take to arrive; the jail is on the same machine.
_REQUEST_S = 10.0


def guest_rules(policy: FetchPolicy) -> FetchPolicy:
    """Return the policy of a sandbox with its limits lowered to those of a guest."""
    return replace(
        policy,
        max_response_body_bytes=min(policy.max_response_body_bytes, MAX_GUEST_BODY_BYTES),
        max_concurrent=min(policy.max_concurrent, MAX_GUEST_FETCHES),
    )


class FetchBridge(JailServer):
    """Serves the fetches of one wasm guest. ``EgressProxy`` is its counterpart for native programs."""

    what = "fetch bridge"

    def __init__(self, client: SafeClient) -> None:
        super().__init__()
        self._client = client

    @property
    def violations(self) -> tuple[Violation, ...]:
        """See ``JailServer``."""
        return self._client.violations

    def take_violations(self) -> tuple[Violation, ...]:
        """See ``JailServer``."""
        return self._client.take_violations()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if len(self._connections) <= MAX_GUEST_FETCHES:
                await self._answer(reader, writer)
        except (OSError, EOFError, TimeoutError):
            pass  # the guest closed the connection or sent no request: there is no reader for a response
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(_REQUEST_S):
            size = int.from_bytes(await reader.readexactly(4), "big")
            if size > MAX_REQUEST_JSON_BYTES:
                return
            request = await reader.readexactly(size)
        fetching = asyncio.ensure_future(answer_async(request, self._client))
        gone = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait((fetching, gone), return_when=asyncio.FIRST_COMPLETED)
            if not fetching.done():
                return
            response = fetching.result()
        finally:
            for waiting in (fetching, gone):
                waiting.cancel()
                with contextlib.suppress(asyncio.CancelledError, OSError):
                    await waiting
        if len(response) >= 1 << 32:
            response = encode_error("the response is too large for a guest")
        writer.write(len(response).to_bytes(4, "big") + response)
        await writer.drain()


#: Largest request in bytes: a body of 10 MiB (the limit of the default policy) as base64, plus headers.
MAX_REQUEST_JSON_BYTES = 16 * MIB
NETWORKING_DISABLED = "networking disabled: no domain is allowed; add --allow-net example.org"

_TEXTS = ("url", "method", "body", "body_b64")


def decode_request(request_json: bytes) -> FetchRequest:
    """Parse the request of a hostile guest. Raises ``InvalidRequest`` that says what is wrong."""
    if len(request_json) > MAX_REQUEST_JSON_BYTES:
        raise InvalidRequest(f"the request has {len(request_json)} bytes, at most {MAX_REQUEST_JSON_BYTES} are read")
    found, headers = read_request_json(request_json, _TEXTS, "headers", MAX_HEADERS)
    url, method, body, coded = (found.get(key) for key in _TEXTS)
    if url is None:
        raise InvalidRequest("the request needs a url that is text")
    if coded is not None and body is not None:
        raise InvalidRequest("give body or body_b64, not both")
    payload = body if coded is None else _from_base64(coded)
    return FetchRequest(url=url, method="GET" if method is None else method, headers=headers, body=payload)


def encode_response(response: FetchResponse) -> bytes:
    """Return the JSON of a response; header names in lower case, repeated headers joined with commas."""
    return _document(response.status, _joined(response.headers), response.body, response.ok, None)


def encode_error(message: str) -> bytes:
    """Return the JSON of a response for a request that failed."""
    return _document(0, {}, b"", False, message)


async def answer_async(request_json: bytes, client: SafeClient | None) -> bytes:
    """Carry out a guest's fetch. Always returns a response: a failure is in its field ``error``.

    ``client`` is None when the sandbox has no network.
    """
    try:
        request = decode_request(request_json)
        if client is None:
            raise NetworkingDisabled(NETWORKING_DISABLED)
        return encode_response(await client.afetch(request))
    except FetchError as error:
        text = str(error)
        return encode_error(text if error.rule in text else f"{error.rule}: {text}")
    except SandboxError as error:
        return encode_error(str(error))


def _document(status: int, headers: dict[str, str], body: bytes, ok: bool, error: str | None) -> bytes:
    document = {
        "status": status,
        "headers": headers,
        "body": body.decode("utf-8", "replace"),
        "body_b64": base64.b64encode(body).decode("ascii"),
        "ok": ok,
        "error": error,
    }
    # An error may quote a lone surrogate; it is written as the JSON escape of that character.
    return json.dumps(document, ensure_ascii=False).encode("utf-8", "backslashreplace")


def _joined(headers: tuple[tuple[str, str], ...]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for name, value in headers:
        found.setdefault(name.lower(), []).append(value)
    return {name: ", ".join(values) for name, values in found.items()}


def _from_base64(value: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidRequest(f"body_b64 is not base64: {error}") from None


_SPACE = re.compile(r"[ \t\n\r]*")
_Value = TypeVar("_Value")

Text = str | None
Table = dict[str, str]


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def object(self, most: int, known: Collection[str] | None, value: Callable[[str], _Value]) -> dict[str, _Value]:
        """Read an object of at most ``most`` entries; ``value(key)`` reads the value of each key."""
        found: dict[str, _Value] = {}
        self.expect("{", "an object")
        if self.next() == "}":
            self._at += 1
            return found
        while True:
            key = self.string("a key")
            if known is not None and key not in known:
                raise InvalidRequest(f"the request has the unknown key {key[:50]!r}; known keys: {', '.join(known)}")
            if key in found or len(found) == most:
                raise InvalidRequest(
                    f"the request names {key[:50]!r} twice, or has more than {most} entries in a table"
                )
            self.expect(":", "a colon")
            found[key] = value(key)
            if self.next() == "}":
                self._at += 1
                return found
            self.expect(",", "a comma")

    def string(self, what: str) -> str:
        self.expect('"', what)
        try:
            found: tuple[str, int] = scanstring(self._text, self._at, True)
        except ValueError as error:
            raise InvalidRequest(f"the request is not JSON: {error}") from None
        self._at = found[1]
        return found[0]

    def null(self) -> bool:
        if not self._text.startswith("null", self._at):
            return False
        self._at += 4
        return True

    def next(self) -> str:
        """Skip white space and return the next character; an empty string at the end."""
        space = _SPACE.match(self._text, self._at)
        assert space is not None
        self._at = space.end()
        return self._text[self._at : self._at + 1]

    def expect(self, character: str, what: str) -> None:
        if self.next() != character:
            raise InvalidRequest(f"the request is not JSON of a request: {what} must stand at position {self._at}")
        self._at += 1

    def end(self) -> None:
        if self.next():
            raise InvalidRequest(f"the request is not JSON: something follows it at position {self._at}")


def read_request_json(data: bytes, texts: Collection[str], table: str, most: int) -> tuple[dict[str, Text], Table]:
    """Parse a request. Returns the values of the keys ``texts`` (string or null) and the object under ``table``.

    Raises ``InvalidRequest`` for any other content, a repeated key, or more than ``most`` entries in the table.
    """
    try:
        reader = _Reader(data.decode())
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"the request is not JSON: it is not UTF-8 ({error.reason})") from None
    entries: Table = {}

    def value(key: str) -> Text:
        reader.next()
        if reader.null():
            return None
        if key == table:
            entries.update(reader.object(most, None, lambda name: reader.string(f"text for header {name[:50]!r}")))
            return None
        return reader.string(f"text or null for {key!r}")

    found = reader.object(len(texts) + 1, (*texts, table), value)
    reader.end()
    found.pop(table, None)
    return found, entries
