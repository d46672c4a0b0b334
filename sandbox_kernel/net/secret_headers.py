"""Secrets that never enter a sandbox: the program has a placeholder, and the host puts the value into the headers.

A program sends the placeholder where it would send the secret, for example in ``Authorization``. In requests to the
hosts that the secret is for, and only there, the host replaces the placeholder with the value and sends it over TLS.
Only headers are filled: servers log URLs and bodies.
Everything that the program prints, stores or sends elsewhere holds the placeholder. Responses are not searched: a
server that echoes request headers reveals the value to the program, so name hosts that do not.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from sandbox_kernel.errors import InvalidRequest, PolicyViolation
from sandbox_kernel.model import check_env
from sandbox_kernel.net.fetch_messages import Headers
from sandbox_kernel.net.fetch_policy import DomainPattern, domain_patterns, refused
from sandbox_kernel.net.targets import DEFAULT_PORTS, Target

#: Values that a header can carry without changing the rest of the request.
_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,4094}[\x21-\x7e])?\Z")

#: Key of the placeholders: one secret has the same placeholder in all sandboxes of a process, and it reveals nothing.
_KEY = os.urandom(32)


@dataclass(frozen=True, kw_only=True)
class Secret:
    """One secret value and the hosts that may receive it.

    Args:
        name: Environment variable in which programs find the placeholder.
        value: The secret: 1 to 4096 printable ASCII characters.
        hosts: Hosts that may receive the value, written as in an allow list. The policy must allow them too.
        plain_http: Send the value without TLS too, for hosts in a local network.
    """

    name: str
    value: str = field(repr=False)
    hosts: Iterable[DomainPattern | str]
    plain_http: bool = False
    placeholder: str = field(init=False, compare=False, default="")

    def __post_init__(self) -> None:
        try:
            check_env({self.name: "x"})
        except InvalidRequest as error:
            raise PolicyViolation(f"a secret needs the name of a variable: {error}") from None
        if not isinstance(self.value, str) or not _VALUE.match(self.value):
            raise PolicyViolation(
                f"the value of the secret {self.name} must be 1 to 4096 printable ASCII characters, with no space "
                "around them, or no header can carry it"
            )
        hosts = domain_patterns(self.hosts)
        if not hosts:
            raise PolicyViolation(f"the secret {self.name} is for no host; name one: hosts=['api.example.org']")
        object.__setattr__(self, "hosts", hosts)
        digest = hmac.new(_KEY, f"{self.name}={self.value}".encode(), "sha256").hexdigest()
        object.__setattr__(self, "placeholder", f"sandbox-secret-{digest[:32]}")

    def is_for(self, target: Target) -> bool:
        """Return whether this target may receive the value."""
        return any(
            isinstance(host, DomainPattern)
            and host.matches(target.host)
            and target.port in (host.ports or DEFAULT_PORTS.values())
            for host in self.hosts
        )

    def put_into(self, text: str) -> str:
        """Return a header value with the placeholder replaced by the secret, also inside the base64 of ``Basic``."""
        scheme, space, rest = text.partition(" ")
        if scheme.lower() == "basic" and space:
            try:
                pair = base64.b64decode(rest.strip(), validate=True)
            except (binascii.Error, ValueError):
                pair = b""
            if self.placeholder.encode() in pair:
                filled = pair.replace(self.placeholder.encode(), self.value.encode())
                return f"{scheme} {base64.b64encode(filled).decode('ascii')}"
        return text.replace(self.placeholder, self.value)


def read_secrets(words: Iterable[str], variables: Mapping[str, str]) -> tuple[Secret, ...]:
    """Parse ``NAME@HOST`` words. ``variables`` has the values; one name may have several hosts."""
    hosts: dict[str, list[str]] = {}
    for word in words:
        name, given, domain = word.strip().partition("@")
        if not given or not name or not domain:
            raise PolicyViolation(f"{word!r:.100} must be NAME@HOST, like TOKEN@api.example.org")
        if name not in variables:
            raise PolicyViolation(f"{word!r:.100}: there is no variable {name}; export it first")
        hosts.setdefault(name, []).append(domain)
    return tuple(Secret(name=name, value=variables[name], hosts=domains) for name, domains in hosts.items())


class Vault:
    """The secrets of one sandbox, used by the client and the proxy. Most sandboxes have none."""

    def __init__(self, held: Iterable[Secret] = ()) -> None:
        self._held = tuple(held)
        names = [secret.name for secret in self._held]
        if len(set(names)) < len(names):
            raise PolicyViolation(f"two secrets have the same name; each needs its own: {', '.join(sorted(names))}")

    def __bool__(self) -> bool:
        return bool(self._held)

    @property
    def placeholders(self) -> dict[str, str]:
        """The environment variables of programs: the placeholder of each secret by its name."""
        return {secret.name: secret.placeholder for secret in self._held}

    def fill(self, target: Target, headers: Headers) -> Headers:
        """Return the headers with secrets filled in. Raises ``FetchRefused`` for a host that a secret is not for."""
        for secret in self._used(headers):
            if not secret.is_for(target):
                reason = f"the value of {secret.name} is not for this host"
                raise refused("secret_not_for_host", target.endpoint, reason, "name the host in Secret(hosts=…)")
            if target.scheme != "https" and not secret.plain_http:
                reason = f"the value of {secret.name} is only sent over TLS"
                raise refused("secret_needs_tls", target.endpoint, reason, "write https, or Secret(plain_http=True)")
            headers = tuple((name, secret.put_into(value)) for name, value in headers)
        return headers

    def over_tls(self, target: Target, headers: Headers) -> Target:
        """Return the target of a plain HTTP request to the proxy; one that carries a secret is sent over TLS."""
        # The program cannot use TLS itself: the proxy could not fill the secret into encrypted headers.
        wants = [secret for secret in self._used(headers) if secret.is_for(target) and not secret.plain_http]
        if target.scheme != "http" or not wants:
            return target
        return replace(target, scheme="https", port=DEFAULT_PORTS["https"] if target.port == 80 else target.port)

    def check_tunnel(self, target: Target) -> None:
        """Refuse a tunnel to the host of a secret: the server would receive the placeholder instead of the value."""
        for secret in self._held:
            if secret.is_for(target):
                reason = f"the value of {secret.name} cannot be put into TLS that the program encrypts itself"
                remedy = f"ask for http://{target.host_in_brackets}/…: the host sends it on over TLS"
                raise refused("secret_in_tunnel", target.endpoint, reason, remedy)

    def _used(self, headers: Headers) -> list[Secret]:
        return [secret for secret in self._held if any(secret.put_into(value) != value for _, value in headers)]
