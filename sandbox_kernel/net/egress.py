"""Network settings that only the host program may choose: audit log, private hosts, resolver and secrets."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from sandbox_kernel.errors import PolicyViolation

if TYPE_CHECKING:
    from sandbox_kernel.net.audit import AuditRecord, AuditSink
    from sandbox_kernel.net.fetch_policy import FetchPolicy
    from sandbox_kernel.net.proxy.egress_proxy import EgressProxy
    from sandbox_kernel.net.resolve import Resolver
    from sandbox_kernel.net.safe_client import SafeClient
    from sandbox_kernel.net.secret_headers import Secret, Vault
    from sandbox_kernel.policy import SandboxPolicy

#: Environment variable: audit log of every sandbox of the process that has no ``audit`` argument, kernels included.
AUDIT_VARIABLE = "SANDBOX_KERNEL_AUDIT"

#: Environment variable: secrets of every sandbox of the process that has no ``secrets``, as NAME@HOST with commas.
SECRETS_VARIABLE = "SANDBOX_KERNEL_SECRETS"


class Egress:
    """Makes proxies and clients with one audit log. Raises ``PolicyViolation`` for a log that cannot be opened."""

    def __init__(
        self,
        audit: AuditSink | str | os.PathLike[str] | None = None,
        allow_private_for: Iterable[str] = (),
        resolver: Resolver | None = None,
        secrets: Iterable[Secret] = (),
    ) -> None:
        if isinstance(allow_private_for, str):
            raise PolicyViolation(f"allow_private_for takes a list of hosts; write ({allow_private_for!r},)")
        log = audit if audit is not None else os.environ.get(AUDIT_VARIABLE) or None
        self._audit: AuditSink | None = None
        if log is not None:
            from sandbox_kernel.net.audit import audit_sink  # most sandboxes have no log

            self._audit = audit_sink(log)
        self._private = tuple(allow_private_for)
        self._resolver = resolver
        held = tuple(secrets)
        words = [word for word in os.environ.get(SECRETS_VARIABLE, "").split(",") if word.strip()]
        self.vault: Vault | None = None
        if held or words:
            from sandbox_kernel.net.secret_headers import Vault, read_secrets

            self.vault = Vault(held or read_secrets(words, os.environ))
        #: Whether any setting was made. Settings hold on this machine only, so Dask workers cannot use them.
        self.special = log is not None or bool(self._private) or resolver is not None or self.vault is not None
        if self._private:
            from sandbox_kernel.net.fetch_policy import FetchPolicy

            self._opened(FetchPolicy())

    def proxy(self, policy: FetchPolicy) -> EgressProxy:
        """Return a new proxy for one sandbox."""
        from sandbox_kernel.net.proxy.egress_proxy import EgressProxy

        return EgressProxy(self._opened(policy), resolver=self._resolver, audit=self._audit, vault=self.vault)

    def client(self, policy: FetchPolicy) -> SafeClient:
        """Return a new client for fetches of the host or of one wasm guest."""
        from sandbox_kernel.net.safe_client import SafeClient

        return SafeClient(self._opened(policy), self._resolver, self._audit, vault=self.vault)

    def write_down(self, record: AuditRecord) -> None:
        """Write a record to the audit log, if there is one."""
        if self._audit is not None:
            self._audit(record)

    def _opened(self, policy: FetchPolicy) -> FetchPolicy:
        return replace(policy, allow_private_for=(*policy.allow_private_for, *self._private))


def with_placeholders(policy: SandboxPolicy, vault: Vault | None) -> SandboxPolicy:
    """Return the policy with the placeholders of the secrets as environment variables of its programs."""
    for name, placeholder in (vault.placeholders if vault is not None else {}).items():
        if name in policy.env:
            raise PolicyViolation(f"the policy sets {name} itself, so no secret can have that name; remove one")
        policy = policy.with_env(name, placeholder)
    return policy
