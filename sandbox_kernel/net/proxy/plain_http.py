"""One plain HTTP request through the proxy: reads its head, sends it rebuilt to the server, returns the response."""

from __future__ import annotations

import asyncio

import h11

from sandbox_kernel.errors import FetchError
from sandbox_kernel.net.proxy.http_messages import ProxyRequest, check_lines, head_for_client, malformed
from sandbox_kernel.net.proxy.link import ClientGone, Link
from sandbox_kernel.net.proxy.relay import both, receive, send

_RESPONSE_HEAD_BYTES = 64 * 1024


async def read_head(link: Link, http: h11.Connection) -> h11.Request:
    """Read the next request head within its time and size limits. Raises ``FetchRefused`` for anything else, and
    ``ClientGone`` when the client closed the connection.
    """
    limits = link.rules.limits
    head = bytearray(http.trailing_data[0])
    started = bool(head)
    try:
        async with asyncio.timeout(limits.head_timeout_s):
            while True:
                check_lines(head)
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
    onward = h11.Connection(h11.CLIENT, max_incomplete_event_size=_RESPONSE_HEAD_BYTES)
    link.traffic.add_out(await send(link.far_writer, onward.send(request.head_for_upstream()), link.activity))
    try:
        await both(link.activity, _upload(link, http, onward), _download(link, http, onward), ends_with_download=True)
    except h11.ProtocolError as error:
        raise FetchError(f"the exchange with {request.target.endpoint} failed: {str(error)[:200]}") from None
    if not link.answered:
        idle = link.rules.limits.idle_timeout_s
        raise FetchError(f"{request.target.endpoint} did not answer within {idle:g} s", rule="request_timeout")


async def _upload(link: Link, http: h11.Connection, onward: h11.Connection) -> None:
    while True:
        try:
            event = http.next_event()
        except h11.RemoteProtocolError as error:
            raise malformed(str(error)) from None
        if event is h11.NEED_DATA:
            if http.they_are_waiting_for_100_continue:
                go_on = h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue")
                await send(link.writer, http.send(go_on), link.activity)
            http.receive_data(await receive(link.reader, link.activity))
            continue
        # Trailers of the program are dropped.
        piece = event if isinstance(event, h11.Data) else h11.EndOfMessage()
        try:
            link.traffic.add_out(await send(link.far_writer, onward.send(piece), link.activity))
        except OSError:
            # A server may respond and close before it has read the whole request; its response is still delivered.
            return
        if isinstance(piece, h11.EndOfMessage):
            return


async def _download(link: Link, http: h11.Connection, onward: h11.Connection) -> None:
    while True:
        event = onward.next_event()
        if event is h11.NEED_DATA:
            data = await receive(link.far_reader, link.activity)
            link.traffic.add_in(len(data))
            onward.receive_data(data)
        elif isinstance(event, h11.Response):
            link.answered = True
            await send(link.writer, http.send(head_for_client(event)), link.activity)
        elif isinstance(event, h11.Data):
            await send(link.writer, http.send(event), link.activity)
        elif isinstance(event, h11.EndOfMessage):
            await send(link.writer, http.send(h11.EndOfMessage()), link.activity)
            return
        elif not isinstance(event, h11.InformationalResponse):
            raise h11.RemoteProtocolError("it closed the connection")
