"""The only way out of a sandbox's empty network namespace: a forward proxy on the host, one for each sandbox.

The listening socket is made inside the namespace and passed to the host as a descriptor, so only programs in that
namespace can connect to it. They find the proxy through ``http_proxy`` and ``https_proxy``. Names are resolved on the
host, and only those that the policy allows. All proxies of a process share one thread.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from dataclasses import replace

from sandbox_kernel.errors import PolicyViolation
from sandbox_kernel.model import Note, Violation, notes
from sandbox_kernel.net.egress import AuditSink, audit_sink
from sandbox_kernel.net.fetch_policy import DEFAULT_METHODS, FetchPolicy, RateLimit, ViolationLog
from sandbox_kernel.net.proxy.connection import ProxyConnection
from sandbox_kernel.net.proxy.jail_server import JailServer
from sandbox_kernel.net.proxy.relay import CHUNK, ProxyLimits, ProxyRules, Traffic
from sandbox_kernel.net.resolve import Resolver, lookup_threads, system_resolver
from sandbox_kernel.net.secret_headers import Vault

__all__ = ["EgressProxy", "ProxyLimits"]

#: Most failed requests in the notes of a result.
_TOLD = 5


class EgressProxy(JailServer):
    """Serves the connections of one sandbox within a policy. Use it as a context manager, or call ``close``.

    The proxy does not limit the size of bodies: it keeps none in memory, and the disk limit of the sandbox applies.

    Args:
        policy: Which hosts may be reached, how, and how much.
        resolver: Function from host name and port to addresses; by default the resolver of the host.
        audit: File to append JSON lines to, or a function that receives each ``AuditRecord``; None for no log.
        allow_private_for: Hosts that may have private addresses, in addition to those of the policy.
        limits: Sizes, timeouts and TLS ports of connections; None for the defaults.
        vault: Secrets that the proxy fills into headers; None for no secrets.

    """

    what = "egress proxy"
    limit = CHUNK

    def __init__(
        self,
        policy: FetchPolicy,
        *,
        resolver: Resolver | None = None,
        audit: AuditSink | str | os.PathLike[str] | None = None,
        allow_private_for: Iterable[str] = (),
        limits: ProxyLimits | None = None,
        vault: Vault | None = None,
    ) -> None:
        if "https" in policy.schemes and set(policy.methods) != set(DEFAULT_METHODS):
            raise PolicyViolation(
                f"methods {' '.join(policy.methods)} cannot be enforced by the proxy, which does not see inside TLS; "
                "use the default methods, or schemes=('http',)"
            )
        self.policy = replace(policy, allow_private_for=(*policy.allow_private_for, *allow_private_for))
        super().__init__()
        self._traffic = Traffic()
        self._refusals, self._failures = ViolationLog(), ViolationLog()
        self._executor = lookup_threads()
        self._rules = ProxyRules(
            policy=self.policy,
            resolver=resolver or system_resolver,
            executor=self._executor,
            limits=limits or ProxyLimits(),
            rate=RateLimit(self.policy),
            refusals=self._refusals,
            failures=self._failures,
            audit=audit_sink(audit),
            traffic=self._traffic,
            vault=vault or Vault(),
        )

    def change_policy(self, policy: FetchPolicy) -> None:
        """Serve later requests under another policy, and end every connection that is open now.

        Args:
            policy: Which hosts may be reached from now on.

        """
        private = tuple(self.policy.allow_private_for)
        self.policy = replace(policy, allow_private_for=private)
        self._rules = replace(self._rules, policy=self.policy, rate=RateLimit(self.policy))
        self.end_connections()

    def close(self) -> None:
        """See ``JailServer``."""
        super().close()
        self._executor.shutdown(wait=False, cancel_futures=True)

    @property
    def violations(self) -> tuple[Violation, ...]:
        """See ``JailServer``."""
        return self._refusals.snapshot()

    def take_violations(self) -> tuple[Violation, ...]:
        """See ``JailServer``."""
        return self._refusals.take()

    def take_failures(self) -> tuple[Note, ...]:
        """See ``JailServer``."""
        return tuple(notes.unreached(failure.reason) for failure in self._failures.take()[:_TOLD])

    @property
    def bytes_out(self) -> int:
        """Bytes that left the sandbox so far."""
        return self._traffic.bytes_out

    @property
    def bytes_in(self) -> int:
        """Bytes that came into the sandbox so far."""
        return self._traffic.bytes_in

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await ProxyConnection(self._rules, reader, writer).serve()
