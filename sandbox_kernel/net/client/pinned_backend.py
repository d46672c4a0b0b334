"""The network backend for httpcore: it connects only to addresses that were checked."""

from __future__ import annotations

import ssl
from collections.abc import Iterable

import certifi
import httpcore

from sandbox_kernel.net.resolve import Pinned

_SocketOption = tuple[int, int, int] | tuple[int, int, bytes | bytearray] | tuple[int, int, None, int]


class PinnedBackend(httpcore.AsyncNetworkBackend):
    """Tries the pinned addresses in order. TLS above it still uses the host name, for SNI and the certificate."""

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
        """Connect without a lookup; ``host`` must be the pinned name."""
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
        """Always raises: a fetch never uses a unix socket."""
        raise httpcore.ConnectError("unix sockets are not fetched from")


def verifying_context(ca_file: str | None = None) -> ssl.SSLContext:
    """Return a TLS context that verifies certificate and name by the roots of the system, certifi and ``ca_file``."""
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    if ca_file is not None:
        context.load_verify_locations(ca_file)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
