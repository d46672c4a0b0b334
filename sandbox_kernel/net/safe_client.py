"""Fetches URLs for code that is not trusted.

Each hop takes the same steps: the policy checks the URL, the rate limit counts it, the name is resolved once and every
address is checked, and the connection goes to a checked address with the name in SNI and Host. The client uses no
proxy of the environment, no netrc, no cookie jar, no connection reuse and no decompression.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from urllib.parse import quote, urljoin

import h11

from sandbox_kernel.errors import FetchError
from sandbox_kernel.model import Violation
from sandbox_kernel.net.audit import AuditRecord, AuditSink, audit_sink
from sandbox_kernel.net.fetch_messages import FetchRequest, FetchResponse, Headers, forwardable
from sandbox_kernel.net.fetch_policy import FetchPolicy, FetchRefused, RateLimit, ViolationLog, refused
from sandbox_kernel.net.resolve import (
    Pinned,
    Resolver,
    connect,
    lookup_threads,
    pin_in_thread,
    system_resolver,
    verifying_context,
)
from sandbox_kernel.net.secret_headers import Vault
from sandbox_kernel.net.targets import Target, parse_url
from sandbox_kernel.util.loop_thread import NETWORK

__all__ = ["FetchRequest", "FetchResponse", "SafeClient"]

_HEAD_BYTES, _CHUNK = 64 << 10, 64 << 10


class SafeClient:
    """Fetches URLs within a policy, from any thread or event loop. Keeps no connection open and needs no ``close``.

    Args:
        policy: Which hosts may be reached, how, and how much.
        resolver: Function from host name and port to addresses; by default the resolver of the host.
        audit: File to append JSON lines to, or a function that receives each ``AuditRecord``; None for no log.
        ca_file: PEM file of additional root certificates. Verification cannot be turned off.
        vault: Secrets that the client fills into headers; None for no secrets.
    """

    def __init__(
        self,
        policy: FetchPolicy,
        resolver: Resolver | None = None,
        audit: AuditSink | str | os.PathLike[str] | None = None,
        *,
        ca_file: str | None = None,
        vault: Vault | None = None,
    ) -> None:
        self.policy = policy
        self._resolver = resolver or system_resolver
        self._audit = audit_sink(audit)
        self._limit = RateLimit(policy)
        self._refusals = ViolationLog()
        self._ca_file = ca_file
        self._tls: ssl.SSLContext | None = None
        self._vault = vault or Vault()
        self._lookups, self._process = lookup_threads(), os.getpid()

    @property
    def violations(self) -> tuple[Violation, ...]:
        """The requests that were refused so far, each once."""
        return self._refusals.snapshot()

    def fetch(self, request: FetchRequest | str) -> FetchResponse:
        """Fetch a URL (GET) or a request and wait for the response, whatever its status. Raises ``FetchError``."""
        return NETWORK.run(self.afetch(request))

    async def afetch(self, request: FetchRequest | str) -> FetchResponse:
        """Like ``fetch``, on the event loop of the caller. Cancelling the task closes the connection."""
        if isinstance(request, str):
            request = FetchRequest(url=request)
        try:
            with self._limit.slot(f"{request.method} {request.url}"[:300]):
                async with asyncio.timeout(self.policy.request_timeout_s):
                    return await self._follow(request)
        except FetchRefused as error:
            self._refusals.add(error.violation)
            raise
        except TimeoutError:
            raise FetchError(
                f"{request.method} {request.url[:200]} took longer than {self.policy.request_timeout_s:g} s in all; "
                "allow more with FetchPolicy(request_timeout_s=…)",
                rule="request_timeout",
            ) from None

    async def _follow(self, request: FetchRequest) -> FetchResponse:
        visited: list[str] = []
        while True:
            try:
                url, found = await self._one(request)
            except FetchRefused as error:
                if not visited or error.rule != "private_ip_blocked":
                    raise
                raise FetchRefused(replace(error.violation, rule="redirect_to_private_ip")) from None
            if isinstance(found, FetchResponse):
                return replace(found, redirects=tuple(visited))
            visited.append(url)
            if len(visited) > self.policy.max_redirects:
                raise refused(
                    "too_many_redirects",
                    f"{request.method} {visited[0]}"[:300],
                    f"it redirects more than {self.policy.max_redirects} times",
                    f"FetchPolicy(max_redirects={self.policy.max_redirects + 10})",
                )
            request = found

    async def _one(self, request: FetchRequest) -> tuple[str, FetchResponse | FetchRequest]:
        """Send a request. Returns its URL, and the response or the request that follows a redirect."""
        decision = self.policy.check_request(request.method, request.url, len(request.payload))
        target = decision.target
        host, port, path = (target.host, target.port, target.path.partition("?")[0]) if target else ("", 0, "")
        record = AuditRecord(
            event="", via="fetch", method=request.method, host=host, port=port, path=path,
            bytes_out=len(request.payload),
        )  # fmt: skip
        try:
            target = decision.require()
            sent = replace(request, headers=self._vault.fill(target, request.header_list))
            self._limit.count(decision.limit_key, f"{request.method} {target.url}"[:300])
            pinned = await pin_in_thread(target, self.policy, self._resolver, self._threads())
            record = replace(record, address=pinned.address)
            self._audit(replace(record, event="allowed"))
            found, address = await self._exchange(request, sent, pinned)
        except FetchError as error:
            if error.rule != "audit_failed":
                self._audit(record.ended(error))
            raise
        size, status = (len(found.body), found.status) if isinstance(found, FetchResponse) else (0, None)
        self._audit(replace(record, event="finished", address=address, bytes_in=size, status=status))
        return target.url, found

    def _threads(self) -> ThreadPoolExecutor:
        """Return the threads for lookups; makes new ones in a forked child, which has no threads of its parent."""
        if self._process != os.getpid():
            self._lookups, self._process = lookup_threads(), os.getpid()
        return self._lookups

    async def _exchange(
        self, request: FetchRequest, sent: FetchRequest, pinned: Pinned
    ) -> tuple[FetchResponse | FetchRequest, str]:
        """Send ``sent``, which holds secrets. A redirect is built from ``request``, which holds none."""
        target = pinned.target
        if target.scheme == "https" and self._tls is None:
            self._tls = verifying_context(self._ca_file)
        tls = self._tls if target.scheme == "https" else None
        reader, writer = await connect(pinned, self.policy.connect_timeout_s, tls)
        address, *_ = writer.get_extra_info("peername") or pinned.addresses  # TLS forgets it when the server closes
        try:
            http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_BYTES)
            head = h11.Request(method=request.method, target=target.path, headers=_wire_headers(sent, target))
            for event in (head, h11.Data(data=request.payload), h11.EndOfMessage()):
                writer.write(http.send(event) or b"")
            with contextlib.suppress(OSError):  # a server may answer and close before it has read the whole request
                await writer.drain()
            return await self._read(request, target, http, reader), address
        except (h11.ProtocolError, OSError) as error:
            why = str(error)[:200] or type(error).__name__
            raise FetchError(f"the exchange with {target.endpoint} failed: {why}") from None
        finally:
            writer.transport.abort()

    async def _read(
        self, request: FetchRequest, target: Target, http: h11.Connection, reader: asyncio.StreamReader
    ) -> FetchResponse | FetchRequest:
        most = self.policy.max_response_body_bytes
        status, headers, body = 0, Headers(), bytearray()
        while not isinstance(event := http.next_event(), h11.EndOfMessage):
            await asyncio.sleep(0)  # what has arrived may be thousands of pieces, and others wait
            if event is h11.NEED_DATA:
                http.receive_data(await reader.read(_CHUNK))
            elif isinstance(event, h11.Response):
                status = event.status_code
                headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in event.headers)
                follow = next_request(request, target, status, _first(headers, "location"))
                if follow is not None:
                    return follow
                declared = _first(headers, "content-length")
                if request.method != "HEAD" and declared is not None and declared.isdigit() and int(declared) > most:
                    raise _too_large(request, target, most)
            elif isinstance(event, h11.Data):
                if len(body) + len(event.data) > most:
                    raise _too_large(request, target, most)
                body += event.data
            elif not isinstance(event, h11.InformationalResponse):
                raise h11.RemoteProtocolError("it closed the connection")
        return FetchResponse(status=status, headers=headers, body=bytes(body), url=target.url)


def _wire_headers(request: FetchRequest, target: Target) -> list[tuple[bytes, bytes]]:
    headers = [("Host", target.authority), *forwardable(request.header_list), ("Connection", "close")]
    given = {name.lower() for name, _ in headers}
    for name, value in (("User-Agent", "sandbox-kernel"), ("Accept", "*/*"), ("Accept-Encoding", "identity")):
        if name.lower() not in given:
            headers.append((name, value))
    if request.payload or request.method in ("POST", "PUT", "PATCH"):
        headers.append(("Content-Length", str(len(request.payload))))
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]


def _first(headers: Headers, name: str) -> str | None:
    return next((value for key, value in headers if key.lower() == name), None)


def _too_large(request: FetchRequest, target: Target, most: int) -> FetchRefused:
    subject = f"{request.method} {target.url}"[:300]
    reason = f"the response is larger than {most} bytes"
    return refused("response_body_too_large", subject, reason, f"FetchPolicy(max_response_body_bytes={most * 4 or 1})")


# Turns a redirect into a new request, which then passes every check again.

#: Headers that go along when a redirect leads to another origin; ``guest/wasm/guest_fetch.py`` has them too.
FOLLOWING = ("accept", "accept-encoding", "accept-language", "content-language", "content-type", "range", "user-agent")


def next_request(request: FetchRequest, target: Target, status: int, location: str | None) -> FetchRequest | None:
    """Return the request that follows a redirect; None for any other response (also 300 and 304).

    307 and 308 repeat method and body; the others become GET (HEAD stays HEAD). Other headers stay with their origin.
    Raises ``FetchError`` (``invalid_url``, ``scheme_not_allowed``) for a location that is not a usable URL.
    """
    if status not in (301, 302, 303, 307, 308) or not location:
        return None
    try:
        new = parse_url(urljoin(target.url, _ascii(location)))
    except ValueError as error:
        raise FetchError(
            f"{target.url} redirects to {ascii(location)[:200]}, which is no URL: {error}", rule="invalid_url"
        ) from None
    headers, method, body = request.header_list, request.method, request.body
    if status not in (307, 308):
        method = "HEAD" if method == "HEAD" else "GET"
        body = None
        headers = tuple((name, value) for name, value in headers if not name.lower().startswith("content-"))
    if new.origin != target.origin:
        headers = tuple((name, value) for name, value in headers if name.lower() in FOLLOWING)
    return replace(request, url=new.url, method=method, headers=headers, body=body)


def _ascii(location: str) -> str:
    """Return a Location header as an ASCII URL; control characters are kept, so that the URL parser refuses them."""
    raw = location.strip(" \t").encode("latin-1", "replace")
    if any(byte < 0x20 or byte == 0x7F for byte in raw):
        # urljoin would silently drop tabs and line breaks.
        return "http://" + location
    return quote(raw, safe="%/:?@!$&'()*+,;=-._~[]|^{}#\\")
