"""How the host lets its sandboxes out, beside what their policy allows: one value for proxies, fetches and guests.

The policy says who may be talked to. This says what only the host's program may decide: where it is written down, which
private hosts are meant, who resolves names, and which secrets stay outside.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from sandbox_kernel.errors import PolicyViolation
from sandbox_kernel.net.audit import AuditSink, audit_sink

if TYPE_CHECKING:
    from sandbox_kernel.net.client.safe_client import SafeClient
    from sandbox_kernel.net.proxy.egress_proxy import EgressProxy
    from sandbox_kernel.net.resolve import Resolver
    from sandbox_kernel.net.rules.fetch_policy import FetchPolicy
    from sandbox_kernel.net.secret_headers import Secret, Vault
    from sandbox_kernel.policy import SandboxPolicy

#: Names the audit log of every sandbox of a process, kernels included, that was not given one.
AUDIT_VARIABLE = "SANDBOX_KERNEL_AUDIT"


#: Names the secrets of every sandbox of a process that was given none: NAME@HOST, with commas between.
SECRETS_VARIABLE = "SANDBOX_KERNEL_SECRETS"


class Egress:
    """Makes proxies and clients that share one audit log; ``PolicyViolation`` at once for a log that cannot be opened.

    ``audit`` is a file to append JSON lines to, or a function that gets each record. ``allow_private_for`` names hosts
    that may have private addresses; the policy must allow them too. ``secrets`` are put into headers on their way out.
    """

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
        self._audit = audit_sink(log)
        self._private = tuple(allow_private_for)
        self._resolver = resolver
        held = tuple(secrets) or _secrets_of_environment()
        self.vault: Vault | None = None
        if held:
            from sandbox_kernel.net.secret_headers import Vault

            self.vault = Vault(held)
        #: Whether anything was asked for that only holds on this machine.
        self.special = log is not None or bool(self._private) or resolver is not None or bool(held)
        if self._private:
            from sandbox_kernel.net.rules.fetch_policy import FetchPolicy

            self._opened(FetchPolicy())

    def proxy(self, policy: FetchPolicy) -> EgressProxy:
        """The way out of one sandbox."""
        from sandbox_kernel.net.proxy.egress_proxy import EgressProxy

        return EgressProxy(self._opened(policy), resolver=self._resolver, audit=self._audit, vault=self.vault)

    def client(self, policy: FetchPolicy) -> SafeClient:
        """Fetches of the host, or of one guest, under the same rules."""
        from sandbox_kernel.net.client.safe_client import SafeClient

        return SafeClient(self._opened(policy), self._resolver, self._audit, vault=self.vault)

    def _opened(self, policy: FetchPolicy) -> FetchPolicy:
        return replace(policy, allow_private_for=(*policy.allow_private_for, *self._private))


def _secrets_of_environment() -> tuple[Secret, ...]:
    words = [word for word in os.environ.get(SECRETS_VARIABLE, "").split(",") if word.strip()]
    if not words:
        return ()
    from sandbox_kernel.net.secret_headers import read_secrets

    return read_secrets(words, os.environ)


def with_placeholders(policy: SandboxPolicy, vault: Vault | None) -> SandboxPolicy:
    """The policy whose programs find the placeholders of these secrets in their environment."""
    for name, placeholder in (vault.placeholders if vault is not None else {}).items():
        if name in policy.env:
            raise PolicyViolation(f"the policy sets {name} itself, so no secret can have that name; remove one")
        policy = policy.with_env(name, placeholder)
    return policy
