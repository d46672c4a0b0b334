"""httpcore's way to the network, bent so that it can only reach the addresses that were checked."""

from __future__ import annotations

import ssl
from collections.abc import Iterable

import certifi
import httpcore

from sandbox_kernel.net.resolve import Pinned

_SocketOption = tuple[int, int, int] | tuple[int, int, bytes | bytearray] | tuple[int, int, None, int]


class PinnedBackend(httpcore.AsyncNetworkBackend):
    """Connects to the pinned addresses in turn; TLS above it still uses the name, for SNI and the certificate."""

    def __init__(self, pinned: Pinned) -> None:
        self._pinned = pinned
        self._inner = httpcore.AnyIOBackend()
        #: The address that answered, for the audit log.
        self.connected_to = ""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[_SocketOption] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Ignore the resolver: ``host`` must be the name that was pinned."""
        target = self._pinned.target
        if (host, port) != (target.host, target.port):
            raise httpcore.ConnectError(f"{host}:{port} is not the checked target {target.endpoint}")
        failure: httpcore.ConnectError | httpcore.ConnectTimeout | None = None
        share = None if timeout is None else timeout / len(self._pinned.addresses)
        for address in self._pinned.addresses:
            try:
                stream = await self._inner.connect_tcp(
                    address, port, timeout=share, local_address=local_address, socket_options=socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
            else:
                self.connected_to = address
                return stream
        assert failure is not None
        raise failure

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: Iterable[_SocketOption] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Never: a fetch goes to the Internet."""
        raise httpcore.ConnectError("unix sockets are not fetched from")


def verifying_context(ca_file: str | None = None) -> ssl.SSLContext:
    """TLS that verifies certificate and name against the system's and certifi's roots, and ``ca_file`` if given."""
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    if ca_file is not None:
        context.load_verify_locations(ca_file)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
