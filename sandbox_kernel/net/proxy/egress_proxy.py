"""The only way out of a sandbox's empty network namespace: a forward proxy on the host, one for each sandbox.

The listening socket is made inside the namespace and handed over as a descriptor, so the kernel settles who can connect
to it: the socket is the credential. Programs inside find the proxy through ``http_proxy`` and ``https_proxy``;
names are resolved here, on the host, and only those that the policy allows. All proxies of a process share one thread.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from dataclasses import replace

from sandbox_kernel.errors import PolicyViolation
from sandbox_kernel.model import Note, Violation, notes
from sandbox_kernel.net.audit import AuditSink, audit_sink
from sandbox_kernel.net.proxy.connection import ProxyConnection
from sandbox_kernel.net.proxy.jail_server import JailServer
from sandbox_kernel.net.proxy.link import ProxyLimits, ProxyRules
from sandbox_kernel.net.proxy.relay import CHUNK, Traffic
from sandbox_kernel.net.resolve import Resolver, lookup_threads, system_resolver
from sandbox_kernel.net.rules.fetch_policy import DEFAULT_METHODS, FetchPolicy
from sandbox_kernel.net.rules.rate_limit import RateLimit
from sandbox_kernel.net.rules.violation_log import ViolationLog
from sandbox_kernel.net.secret_headers import Vault

__all__ = ["EgressProxy", "ProxyLimits"]

#: How many hosts that were not reached are told.
_TOLD = 5


class EgressProxy(JailServer):
    """Serves the connections of one sandbox within a policy; use it as a context manager, or ``close`` it.

    ``allow_private_for`` adds to the policy's own. Sizes of bodies are the client's business (``SafeClient``); here
    nothing is kept in memory, and downloads are as long as the sandbox's disk allows.
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
        self._gate = ProxyRules(
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
        await ProxyConnection(self._gate, reader, writer).serve()
