"""Network settings that only the host program may choose, for proxies, fetches and wasm guests.

The policy says which hosts may be reached. These settings add the audit log, the private hosts that are allowed, the
resolver, and the secrets that never enter a sandbox.
"""

from __future__ import annotations

import json
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

from sandbox_kernel.errors import FetchError, PolicyViolation
from sandbox_kernel.policy.written_folders import host_file

if TYPE_CHECKING:
    from sandbox_kernel.net.fetch_policy import FetchPolicy
    from sandbox_kernel.net.proxy.egress_proxy import EgressProxy
    from sandbox_kernel.net.resolve import Resolver
    from sandbox_kernel.net.safe_client import SafeClient
    from sandbox_kernel.net.secret_headers import Secret, Vault
    from sandbox_kernel.policy import SandboxPolicy


# The audit log: one JSON line for each request that was allowed, refused, failed or finished.
#
# Lines name method, host, port, address and sizes. They never hold bodies, headers or query strings, which may hold
# secrets. When the log cannot be written, the request fails: ``FetchError`` with rule ``audit_failed``.

_MAX_TEXT = 500
#: Largest log file, so that a program cannot fill the disk of the host. When the log is full, requests fail.
MAX_FILE_BYTES = 256 << 20


@dataclass(frozen=True, kw_only=True)
class AuditRecord:
    """One event. ``event`` is allowed, refused, failed or finished; ``via`` is fetch or proxy.

    What a user answered to a question over MCP is an event too: granted_once, granted or declined, ``via`` mcp.
    """

    event: str
    via: str
    method: str
    host: str
    port: int
    path: str = ""
    address: str = ""
    rule: str = ""
    reason: str = ""
    status: int | None = None
    bytes_out: int = 0
    bytes_in: int = 0
    time: float = field(default_factory=time.time)

    def to_json_line(self) -> str:
        """Return the record as one ASCII line. Guest texts are cut and escaped, so they cannot forge a line."""
        values = {
            name: value[:_MAX_TEXT] if isinstance(value, str) else value
            for name, value in asdict(self).items()
            if value not in ("", None)
        }
        return json.dumps(values, sort_keys=True) + "\n"


#: A function that receives the records; called from any thread.
AuditSink = Callable[[AuditRecord], None]


class AuditFile:
    """Appends records to a file that only its owner can read. Closes it in ``close`` or with the last reference."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        try:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            fd = os.open(host_file(self.path), flags, 0o600)
        except OSError as error:
            raise PolicyViolation(
                f"audit log {self.path!r} cannot be opened: {error.strerror}; name a file in a folder you can write"
            ) from None
        self._lock = threading.Lock()
        self._fd = fd
        self._room = MAX_FILE_BYTES - os.fstat(fd).st_size
        self._close = weakref.finalize(self, os.close, fd)

    def __call__(self, record: AuditRecord) -> None:
        """Append one record as a whole line."""
        line = record.to_json_line().encode("ascii")
        with self._lock:
            try:
                if not self._close.alive:
                    raise OSError("it was closed")
                self._room -= len(line)
                if self._room < 0:
                    raise OSError(f"it is full at {MAX_FILE_BYTES} bytes; move it away")
                while line:
                    line = line[os.write(self._fd, line) :]
            except OSError as error:
                raise FetchError(
                    f"the audit log {self.path!r} cannot be written ({error}); nothing is sent without it",
                    rule="audit_failed",
                ) from None

    def close(self) -> None:
        """Close the file; may be called twice."""
        with self._lock:
            self._close()


def audit_sink(audit: AuditSink | str | os.PathLike[str] | None) -> AuditSink:
    """Return the sink for an ``audit=`` argument: None, a path to append to, or a function."""
    if audit is None:
        return _forget
    if callable(audit):
        return audit
    return AuditFile(audit)


def _forget(record: AuditRecord) -> None:
    """No log was asked for."""


#: Environment variable: audit log of every sandbox of the process that has no ``audit`` argument, kernels included.
AUDIT_VARIABLE = "SANDBOX_KERNEL_AUDIT"

#: Environment variable: secrets of every sandbox of the process that has no ``secrets``, as NAME@HOST with commas.
SECRETS_VARIABLE = "SANDBOX_KERNEL_SECRETS"


class Egress:
    """Makes proxies and clients that share one audit log. Raises ``PolicyViolation`` for a log that cannot be opened.

    Args:
        audit: File to append JSON lines to, or a function that receives each record; None for no log.
        allow_private_for: Hosts that may have private addresses. The policy must allow them too.
        resolver: Function from host name and port to addresses; by default the resolver of the host.
        secrets: Secrets that proxies and clients fill into headers.

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
        self._audit: AuditSink | None = None
        if log is not None:
            self._audit = audit_sink(log)
        self._private = tuple(allow_private_for)
        self._resolver = resolver
        held = tuple(secrets) or _secrets_of_environment()
        self.vault: Vault | None = None
        if held:
            from sandbox_kernel.net.secret_headers import Vault

            self.vault = Vault(held)
        #: Whether any setting was made. Settings hold on this machine only, so Dask workers cannot use them.
        self.special = log is not None or bool(self._private) or resolver is not None or bool(held)
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


def _secrets_of_environment() -> tuple[Secret, ...]:
    words = [word for word in os.environ.get(SECRETS_VARIABLE, "").split(",") if word.strip()]
    if not words:
        return ()
    from sandbox_kernel.net.secret_headers import read_secrets

    return read_secrets(words, os.environ)


def with_placeholders(policy: SandboxPolicy, vault: Vault | None) -> SandboxPolicy:
    """Return the policy with the placeholders of the secrets as environment variables of its programs."""
    for name, placeholder in (vault.placeholders if vault is not None else {}).items():
        if name in policy.env:
            raise PolicyViolation(f"the policy sets {name} itself, so no secret can have that name; remove one")
        policy = policy.with_env(name, placeholder)
    return policy
