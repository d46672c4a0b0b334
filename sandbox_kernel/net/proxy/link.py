"""Values that the parts of the egress proxy share: the rules of one proxy, and the two sockets of one connection."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from dataclasses import dataclass, field

from sandbox_kernel.net.audit import AuditSink
from sandbox_kernel.net.proxy.relay import Activity, Traffic
from sandbox_kernel.net.resolve import Resolver
from sandbox_kernel.net.rules.fetch_policy import FetchPolicy
from sandbox_kernel.net.rules.rate_limit import RateLimit
from sandbox_kernel.net.rules.violation_log import ViolationLog
from sandbox_kernel.net.secret_headers import Vault


@dataclass(frozen=True, kw_only=True)
class ProxyLimits:
    """Limits on what a hostile client may cost. ``FetchPolicy`` limits connections and requests a minute.

    Args:
        head_bytes: Largest head of a request in bytes.
        head_timeout_s: Seconds in which the head of a request must arrive.
        idle_timeout_s: Seconds without traffic after which a connection is closed.
        tls_ports: Ports on which a tunnel must carry TLS.
        http_ports: Ports on which a tunnel must carry TLS or HTTP.

    """

    head_bytes: int = 32 * 1024
    head_timeout_s: float = 10.0
    idle_timeout_s: float = 120.0
    tls_ports: frozenset[int] = frozenset((443,))
    http_ports: frozenset[int] = frozenset((80,))


@dataclass(frozen=True)
class ProxyRules:
    """The rules, counters and logs that all connections of one proxy share."""

    policy: FetchPolicy
    resolver: Resolver
    executor: Executor
    limits: ProxyLimits
    rate: RateLimit
    refusals: ViolationLog
    failures: ViolationLog
    audit: AuditSink
    traffic: Traffic
    vault: Vault = field(default_factory=Vault)


@dataclass
class Link:
    """One connection of a program to the proxy, and the connection to the server (``far``) once it is open.

    ``answered`` is true when a reply was already sent to the program, so that no other HTTP reply can follow.
    ``last_word`` is sent instead of a reply when such a connection is refused.
    """

    rules: ProxyRules
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    activity: Activity
    traffic: Traffic
    far: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = field(default=None)
    answered: bool = False
    last_word: bytes = b""

    @property
    def far_reader(self) -> asyncio.StreamReader:
        """Reads from the server."""
        assert self.far is not None
        return self.far[0]

    @property
    def far_writer(self) -> asyncio.StreamWriter:
        """Writes to the server."""
        assert self.far is not None
        return self.far[1]


class ClientGone(Exception):
    """The program closed the connection, or left it idle, before it sent a request."""
