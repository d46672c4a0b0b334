"""The only way out of a sandbox's empty network namespace: a forward proxy on the host, one for each sandbox.

The listening socket is made inside the namespace, at any free port, and passed to the host as a descriptor
(``guest/gate/gate.py``), so only programs in that namespace can connect to it. They find the proxy through
``http_proxy`` and ``https_proxy``. Names are resolved on the host, and only those that the policy allows. All proxies
of a process share one thread. Connections are accepted at a limited rate and wait in the kernel's queue of that jail
otherwise, so that a program which connects in a loop does not keep the thread busy.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Iterable
from dataclasses import replace
from typing import Self

from sandbox_kernel.errors import InvalidRequest, PolicyViolation, SandboxDestroyed
from sandbox_kernel.model import Note, Violation, notes
from sandbox_kernel.net.audit import AuditSink, audit_sink
from sandbox_kernel.net.fetch_policy import DEFAULT_METHODS, FetchPolicy, RateLimit, ViolationLog
from sandbox_kernel.net.proxy.connection import ProxyConnection
from sandbox_kernel.net.proxy.relay import CHUNK, ProxyLimits, ProxyRules
from sandbox_kernel.net.resolve import Resolver, lookup_threads, system_resolver
from sandbox_kernel.net.secret_headers import Vault
from sandbox_kernel.util.loop_thread import NETWORK

__all__ = ["EgressProxy", "ProxyLimits"]

_log = logging.getLogger(__name__)

#: Most failed requests in the notes of a result.
_TOLD = 5
#: Connections that are accepted in a second, and at once after a pause. Package managers open some dozens.
_PER_SECOND, _BURST = 200.0, 400
#: Seconds to wait after ``accept`` failed, for example because the host has no descriptor left.
_AFTER_FAILURE_S = 0.5


class EgressProxy:
    """Serves the connections of one sandbox within a policy. Use it as a context manager, or call ``close``.

    The proxy does not limit the size of bodies: it keeps none in memory, and the disk limit of the sandbox applies.
    """

    def __init__(
        self,
        policy: FetchPolicy,
        *,
        resolver: Resolver | None = None,
        audit: AuditSink | str | os.PathLike[str] | None = None,
        limits: ProxyLimits | None = None,
        vault: Vault | None = None,
    ) -> None:
        if "https" in policy.schemes and set(policy.methods) != set(DEFAULT_METHODS):
            raise PolicyViolation(
                f"methods {' '.join(policy.methods)} cannot be enforced by the proxy, which does not see inside TLS; "
                "use the default methods, or schemes=('http',)"
            )
        self.policy = policy
        self._rules = ProxyRules(
            policy=self.policy,
            resolver=resolver or system_resolver,
            executor=lookup_threads(),
            limits=limits or ProxyLimits(),
            rate=RateLimit(self.policy),
            refusals=ViolationLog(),
            failures=ViolationLog(),
            audit=audit_sink(audit),
            vault=vault or Vault(),
        )
        self._listening: set[asyncio.Task[None]] = set()
        self._connections: set[asyncio.Task[None]] = set()
        #: Connections that are being ended.
        self._ended: set[asyncio.Task[None]] = set()
        self._closed = False
        self._mistaken = False

    def start(self, listener: socket.socket) -> None:
        """Serve a listening socket, which the proxy then owns; again when a session has a new network namespace."""
        if self._closed:
            raise SandboxDestroyed("the egress proxy was closed; make a new one for a new sandbox")
        if listener.type != socket.SOCK_STREAM or not listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            raise InvalidRequest(f"the egress proxy needs a listening stream socket, got {listener!r}")
        NETWORK.run(self._listen(listener))

    def change_policy(self, policy: FetchPolicy) -> None:
        """Serve later requests under another policy, and end every connection that is open now."""
        self.policy = replace(policy, allow_private_for=tuple(self.policy.allow_private_for))
        self._rules = replace(self._rules, policy=self.policy, rate=RateLimit(self.policy))
        NETWORK.run(self._end(self._connections))

    def close(self) -> None:
        """Stop accepting, end every connection and wait until all have ended. May be called twice."""
        if not self._closed:
            self._closed = True
            NETWORK.run(self._end((*self._listening, *self._connections)))
        self._rules.executor.shutdown(wait=False, cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def violations(self) -> tuple[Violation, ...]:
        """The requests that were refused so far, each once."""
        return self._rules.refusals.snapshot()

    def take_violations(self) -> tuple[Violation, ...]:
        """Return the requests that were refused since the last call, each once."""
        return self._rules.refusals.take()

    def take_failures(self) -> tuple[Note, ...]:
        """Return notes on requests since the last call that were allowed and failed; some clients hide the reason."""
        return tuple(notes.unreached(failure.reason) for failure in self._rules.failures.take()[:_TOLD])

    async def _listen(self, listener: socket.socket) -> None:
        task = asyncio.create_task(self._take(listener))
        self._listening.add(task)
        task.add_done_callback(self._listening.discard)

    async def _take(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        listener.setblocking(False)
        turns, counted = float(_BURST), loop.time()
        with listener:
            while True:
                turns, counted = min(_BURST, turns + (loop.time() - counted) * _PER_SECOND), loop.time()
                if turns < 1:
                    await asyncio.sleep((1 - turns) / _PER_SECOND)
                    continue
                turns -= 1
                try:
                    connection, _ = await loop.sock_accept(listener)
                except OSError as error:
                    # No descriptor is free, or the peer has closed already.
                    _log.warning("the egress proxy could not take a connection: %s", error)
                    await asyncio.sleep(_AFTER_FAILURE_S)
                    continue
                reader = asyncio.StreamReader(limit=CHUNK)
                protocol = asyncio.StreamReaderProtocol(reader, self._serve)
                await loop.connect_accepted_socket(lambda made=protocol: made, connection)  # type: ignore[misc]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await ProxyConnection(self._rules, reader, writer).serve()
        except asyncio.CancelledError:
            # Cancelled by ``_end``. If raised, Python 3.11 would print a traceback for each connection.
            if task not in self._ended:
                raise
        except Exception:
            # A bug in the proxy. Logged once: a hostile program could cause it in a loop.
            writer.transport.abort()
            if not self._mistaken:
                self._mistaken = True
                _log.exception("the egress proxy could not serve a connection; this is logged once")
        finally:
            self._connections.discard(task)

    async def _end(self, tasks: Iterable[asyncio.Task[None]]) -> None:
        ending = set(tasks)
        self._ended |= ending
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        self._ended -= ending
