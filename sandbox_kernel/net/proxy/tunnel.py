"""What may flow through a CONNECT tunnel.

On a TLS port it must begin with a ClientHello for the very host that CONNECT named; on a plain port it may also be
HTTP, which is then treated like any plain request. Other ports are open only where a rule names them: there TLS is
checked in the same way, and anything else goes to the pinned address as it is. Inside TLS nothing is seen: a server
that hosts several names can still be asked for another of them.
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
    """Open the tunnel and carry it to its end; ``early`` is what the program sent before it was told to."""
    limits = link.gate.limits
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
    """What a program sends first through its tunnel; ``ClientGone`` when it sends nothing."""
    try:
        async with asyncio.timeout(link.gate.limits.idle_timeout_s):
            data = await receive(link.reader, link.activity)
    except TimeoutError:
        raise ClientGone from None
    if not data:
        raise ClientGone
    return data


async def _plain(link: Link, target: Target, early: bytes) -> None:
    """Some clients tunnel plain HTTP too: what is inside is a request of its own, to the same host."""
    link.answered = False
    if target.port in link.gate.limits.tls_ports:
        raise _not_tls(target, "this is not TLS")
    http = h11.Connection(h11.SERVER, max_incomplete_event_size=link.gate.limits.head_bytes)
    http.receive_data(early)
    request = read_request(await read_head(link, http), inside=target)
    link.gate.policy.check_request(request.method, request.target.url).require()
    # No secret is for this host, or there would be no tunnel: a placeholder on its way to it is refused.
    link.gate.vault.fill(request.target, request.headers)
    await exchange(link, http, request)


async def _vetted_hello(link: Link, target: Target, data: bytes) -> bytes:
    """All bytes up to the end of a ClientHello that names the target; ``FetchRefused`` for any other."""
    link.last_word = ALERT_UNRECOGNISED_NAME
    reader, pieces = HelloReader(), [data]
    try:
        async with asyncio.timeout(link.gate.limits.head_timeout_s):
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
    if "https" not in link.gate.policy.schemes:
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
