"""One connection of a program in the sandbox to the egress proxy: checks one request, carries it out, closes."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import h11

from sandbox_kernel.errors import FetchError
from sandbox_kernel.model import Violation
from sandbox_kernel.net.audit import AuditRecord
from sandbox_kernel.net.fetch_policy import FetchRefused, refused
from sandbox_kernel.net.proxy import relay
from sandbox_kernel.net.proxy.http_messages import (
    ESTABLISHED,
    ProxyRequest,
    exchange,
    failure_reply,
    read_head,
    read_request,
    refusal_reply,
)
from sandbox_kernel.net.proxy.relay import CHUNK, ClientGone, Link, ProxyRules
from sandbox_kernel.net.proxy.tls_hello import ALERT_UNRECOGNISED_NAME, ClientHello, HelloReader
from sandbox_kernel.net.resolve import Pinned, connect, pin_in_thread, verifying_context
from sandbox_kernel.net.targets import Target, normalise_host

_log = logging.getLogger(__name__)


class ProxyConnection:
    """Serves one accepted connection. ``serve`` returns when it is over and never raises for errors of its peers."""

    def __init__(self, rules: ProxyRules, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._rules = rules
        self._link = Link(rules, reader, writer)
        self._record = AuditRecord(event="", via="proxy", method="", host="", port=0)

    async def serve(self) -> None:
        """Serve the connection. Called by the proxy for each connection; cancelled by ``EgressProxy.close``."""
        try:
            with self._rules.rate.slot("a connection to the egress proxy"):
                await self._within_slot()
        except FetchRefused as error:
            # Over the connection limit: send one reply and do not wait for the peer.
            self._note(error)
            self._link.writer.write(refusal_reply(error.violation))
        except asyncio.CancelledError:
            self._link.writer.transport.abort()
            raise
        finally:
            await relay.close(self._link.writer)

    async def _within_slot(self) -> None:
        link = self._link
        try:
            await self._answer()
        except (ClientGone, OSError):
            self._finish()
        except FetchError as error:
            self._note(error)
            word = refusal_reply(error.violation) if isinstance(error, FetchRefused) else failure_reply(error)
            await relay.say_and_linger(link.reader, link.writer, link.last_word if link.answered else word)
        else:
            self._finish()
        finally:
            if link.far is not None:
                await relay.close(link.far_writer)

    async def _answer(self) -> None:
        link, rules = self._link, self._rules
        http = h11.Connection(h11.SERVER, max_incomplete_event_size=rules.limits.head_bytes)
        request = read_request(await read_head(link, http))
        self._about(request)
        early = http.trailing_data[0]
        if request.tunnel and request.target.port in rules.limits.http_ports:
            # Some clients (``fetch`` of Node.js) tunnel plain HTTP too. It is read before connecting: with a secret in
            # it, it is sent over TLS.
            rules.policy.check_target(request.target).require()
            await link.send(ESTABLISHED)
            early = early or await first_bytes(link)
            if early[:1] == TLS_FIRST_BYTE:
                link.answered, link.last_word = True, ALERT_UNRECOGNISED_NAME
            else:
                http = h11.Connection(h11.SERVER, max_incomplete_event_size=rules.limits.head_bytes)
                http.receive_data(early)
                request = read_request(await read_head(link, http), inside=request.target)
        target = request.target if request.tunnel else rules.vault.over_tls(request.target, request.headers)
        request = replace(request, target=target)
        self._about(request)
        pinned = await self._admit(request)
        tls = verifying_context() if not request.tunnel and target.scheme == "https" else None
        link.far = await connect(pinned, rules.policy.connect_timeout_s, tls)
        if request.tunnel:
            await tunnel(link, target, early)
        else:
            await exchange(link, http, replace(request, headers=rules.vault.fill(target, request.headers)))

    def _about(self, request: ProxyRequest) -> None:
        target, path = request.target, "" if request.tunnel else request.target.path.partition("?")[0]
        self._record = replace(self._record, method=request.method, host=target.host, port=target.port, path=path)

    async def _admit(self, request: ProxyRequest) -> Pinned:
        rules = self._rules
        if request.tunnel:
            decision = rules.policy.check_target(request.target)
        else:
            decision = rules.policy.check_request(request.method, request.target.url)
        target = decision.require()
        if request.tunnel:
            rules.vault.check_tunnel(target)
        else:
            rules.vault.fill(target, request.headers)
        rules.rate.count(decision.limit_key, request.subject)
        pinned = await pin_in_thread(target, rules.policy, rules.resolver, rules.executor)
        self._record = replace(self._record, address=pinned.address)
        rules.audit(replace(self._record, event="allowed"))
        return pinned

    def _note(self, error: FetchError) -> None:
        """Log an error. Called before the reply is sent, so that a result made right after contains it."""
        if isinstance(error, FetchRefused):
            self._rules.refusals.add(error.violation)
        else:
            endpoint = f"{self._record.host}:{self._record.port}"
            self._rules.failures.add(Violation(rule=error.rule, subject=endpoint, reason=str(error)))
        self._write(self._record.ended(error))

    def _finish(self) -> None:
        link = self._link
        if self._record.address:
            self._write(replace(self._record, event="finished", bytes_out=link.bytes_out, bytes_in=link.bytes_in))

    def _write(self, record: AuditRecord) -> None:
        """Write an audit record of a finished request. A failure is logged here, and stops the next request."""
        try:
            self._rules.audit(record)
        except FetchError as error:
            _log.warning("%s", error)


# Checks and carries the traffic of a CONNECT tunnel.
#
# On a TLS port the traffic must begin with a ClientHello for the host that CONNECT named. On an HTTP port it may also
# be HTTP, which is checked like any plain request. Other ports are open only when a rule names them: TLS is checked
# there in the same way, and any other traffic goes to the pinned address unchanged. The proxy does not see inside TLS:
# a program can still ask a server that hosts several names for another of them.

TLS_FIRST_BYTE = b"\x16"


async def tunnel(link: Link, target: Target, early: bytes) -> None:
    """Open the tunnel and relay until it ends. ``early`` are bytes that the program has sent already."""
    if not link.answered:
        await link.send(ESTABLISHED)
    if target.port in link.rules.limits.tls_ports:
        early = early or await first_bytes(link)
        if early[:1] != TLS_FIRST_BYTE:
            raise _not_tls(target, "this is not TLS")
    link.answered = True
    await link.both(_upload(link, target, early), _download(link))


async def _upload(link: Link, target: Target, early: bytes) -> None:
    data = early or await link.receive()
    if data[:1] == TLS_FIRST_BYTE:
        data = await _vetted_hello(link, target, data)
    while data:
        await link.send(data, far=True)
        data = await link.receive()
    link.far_writer.write_eof()


async def _download(link: Link) -> None:
    while data := await link.receive(far=True):
        await link.send(data)
    link.writer.write_eof()


async def first_bytes(link: Link) -> bytes:
    """Return the first bytes of a program in its tunnel. Raises ``ClientGone`` when it sends nothing."""
    try:
        async with asyncio.timeout(link.rules.limits.idle_timeout_s):
            data = await link.receive()
    except TimeoutError:
        raise ClientGone from None
    if not data:
        raise ClientGone
    return data


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
