"""Checks and carries the traffic of a CONNECT tunnel.

On a TLS port the traffic must begin with a ClientHello for the host that CONNECT named. On an HTTP port it may also be
HTTP, which is checked like any plain request. Other ports are open only when a rule names them: TLS is checked there in
the same way, and any other traffic goes to the pinned address unchanged. The proxy does not see inside TLS: a program
can still ask a server that hosts several names for another of them.
"""

from __future__ import annotations

import asyncio

import h11

from sandbox_kernel.net.proxy.http_messages import ESTABLISHED, read_request
from sandbox_kernel.net.proxy.link import ClientGone, Link
from sandbox_kernel.net.proxy.plain_http import exchange, read_head
from sandbox_kernel.net.proxy.relay import CHUNK, both, receive, send
from sandbox_kernel.net.proxy.tls_hello import ALERT_UNRECOGNISED_NAME, ClientHello, HelloReader
from sandbox_kernel.net.rules.refusal import FetchRefused, refused
from sandbox_kernel.net.rules.targets import Target, normalise_host

TLS_FIRST_BYTE = b"\x16"


async def tunnel(link: Link, target: Target, early: bytes) -> None:
    """Open the tunnel and relay until it ends. ``early`` are bytes that the program sent ahead of the reply."""
    limits = link.rules.limits
    await send(link.writer, ESTABLISHED, link.activity)
    link.answered = True
    if target.port in limits.tls_ports | limits.http_ports:
        early = early or await first_bytes(link)
        if early[:1] != TLS_FIRST_BYTE:
            await _plain(link, target, early)
            return
    await both(link.activity, _upload(link, target, early), _download(link))


async def _upload(link: Link, target: Target, early: bytes) -> None:
    data = early or await receive(link.reader, link.activity)
    if data[:1] == TLS_FIRST_BYTE:
        data = await _vetted_hello(link, target, data)
    while data:
        link.traffic.add_out(await send(link.far_writer, data, link.activity))
        data = await receive(link.reader, link.activity)
    link.far_writer.write_eof()


async def _download(link: Link) -> None:
    while data := await receive(link.far_reader, link.activity):
        link.traffic.add_in(await send(link.writer, data, link.activity))
    link.writer.write_eof()


async def first_bytes(link: Link) -> bytes:
    """Return the first bytes of a program in its tunnel. Raises ``ClientGone`` when it sends nothing."""
    try:
        async with asyncio.timeout(link.rules.limits.idle_timeout_s):
            data = await receive(link.reader, link.activity)
    except TimeoutError:
        raise ClientGone from None
    if not data:
        raise ClientGone
    return data


async def _plain(link: Link, target: Target, early: bytes) -> None:
    """Serve a plain HTTP request inside a tunnel, to the host of the tunnel. Some clients tunnel plain HTTP too."""
    link.answered = False
    if target.port in link.rules.limits.tls_ports:
        raise _not_tls(target, "this is not TLS")
    http = h11.Connection(h11.SERVER, max_incomplete_event_size=link.rules.limits.head_bytes)
    http.receive_data(early)
    request = read_request(await read_head(link, http), inside=target)
    link.rules.policy.check_request(request.method, request.target.url).require()
    # A tunnel is never opened to the host of a secret, so this refuses every placeholder.
    link.rules.vault.fill(request.target, request.headers)
    await exchange(link, http, request)


async def _vetted_hello(link: Link, target: Target, data: bytes) -> bytes:
    """Return all bytes up to the end of a ClientHello that names the target. Raises ``FetchRefused`` for any other."""
    link.last_word = ALERT_UNRECOGNISED_NAME
    reader, pieces = HelloReader(), [data]
    try:
        async with asyncio.timeout(link.rules.limits.head_timeout_s):
            while (hello := reader.feed(pieces[-1])) is None:
                more = await link.reader.read(CHUNK)
                if not more:
                    raise ClientGone
                pieces.append(more)
    except TimeoutError:
        raise _not_tls(target, "the TLS hello did not end in time") from None
    except ValueError as error:
        raise _not_tls(target, str(error)) from None
    _check_name(target, hello)
    if "https" not in link.rules.policy.schemes:
        raise refused("scheme_not_allowed", target.endpoint, "TLS is not allowed, only http", "FetchPolicy(schemes=…)")
    return b"".join(pieces)


def _check_name(target: Target, hello: ClientHello) -> None:
    if hello.encrypted:
        reason = "an encrypted ClientHello hides which host it asks for; turn ECH off in the program"
        raise refused("sni_mismatch", target.endpoint, reason)
    if target.address is not None and hello.server_name is None:
        return
    try:
        name = normalise_host(hello.server_name or "")[0]
    except ValueError:
        name = ""
    if name != target.host:
        said = ascii(hello.server_name)[:100] if hello.server_name else "no name"
        reason = f"the TLS hello asks for {said}, CONNECT asked for {target.host}"
        raise refused("sni_mismatch", target.endpoint, reason)


def _not_tls(target: Target, why: str) -> FetchRefused:
    return refused("not_tls", target.endpoint, f"only TLS may pass here: {why}", "connect with https")
