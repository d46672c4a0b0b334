"""One network permission: a domain and its ports, as policies hold it and as users write it (``--allow-net``)."""

from __future__ import annotations

import contextlib
import re

from sandbox_kernel.errors import PolicyViolation
from sandbox_kernel.limits import quoted
from sandbox_kernel.model import ExecResult
from sandbox_kernel.model.notes import Wanted, WantedKind
from sandbox_kernel.util.values import dataclass

_HOST_NAME = re.compile(r"(\*\.)?([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*\Z")
#: A domain name never ends in a number: C libraries read such a name as an address, in several notations.
_NUMERIC_END = re.compile(r"(.*\.)?(0x[0-9a-f]*|[0-9]+)\Z")
_FORM = "for example example.org or *.example.org"


@dataclass(frozen=True)
class NetworkRule:
    """An exact host (``example.org``, ``8.8.8.8``) or every host below one (``*.example.org``, not ``example.org``).

    Without ports, those of the policy apply in an allow list, and every port in a block list.
    """

    domain: str
    ports: tuple[int, ...] = ()

    @staticmethod
    def parse(text: str) -> NetworkRule:
        """See ``parse_rule``."""
        return parse_rule(text)

    def __str__(self) -> str:
        """Return the rule as a user writes it after ``--allow-net``; of several ports only the first is shown."""
        host = f"[{self.domain}]" if ":" in self.domain else self.domain
        return f"{host}:{self.ports[0]}" if self.ports else host

    def matches(self, host: str) -> bool:
        """Whether the rule covers this canonical host (of a ``Target``)."""
        return host.endswith(self.domain[1:]) if self.domain.startswith("*.") else host == self.domain


def domain_rule(domain: str, *ports: int) -> NetworkRule:
    """Return the rule of ``allow_domain``. Raises ``PolicyViolation`` for what is no domain, address or port."""
    text = domain.strip() if isinstance(domain, str) else ""
    name = _address(text) or _name(text)
    if name is None:
        raise PolicyViolation(f"{quoted(domain)} is not a domain name; {_FORM}")
    for port in ports:
        if isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65535:
            raise PolicyViolation(f"port {port!r} for {domain} must be a number from 1 to 65535")
    return NetworkRule(name, tuple(ports))


def parse_rule(text: str) -> NetworkRule:
    """Parse ``example.org``, ``*.example.org:8443``, ``192.0.2.1`` or ``[2001:db8::1]:443``."""
    written = text.strip()
    if written == "*":
        raise PolicyViolation("'*' is not a domain; a policy file with allowNetwork = true opens every public address")
    if "://" in written or "/" in written or "@" in written:
        host = _host_of(written)
        meant = f"give its domain alone: {host}" if host is not None else f"give a domain alone, {_FORM}"
        raise PolicyViolation(f"{quoted(text)} is a URL or part of one; {meant}")
    if "," in written or ";" in written or len(written.split()) > 1:
        raise PolicyViolation(f"{quoted(text)} is more than one domain; repeat the option for each")
    host, port = _split(written)
    if port is None:
        return domain_rule(host)
    if not (port.isascii() and port.isdigit()) or not 1 <= len(port) <= 5 or not 1 <= int(port) <= 65535:
        raise PolicyViolation(f"{quoted(text)}: port {quoted(port)} must be a number from 1 to 65535, like 8443")
    return domain_rule(host, int(port))


def _split(text: str) -> tuple[str, str | None]:
    """Split into host and port. An IPv6 address contains colons and needs brackets when a port follows."""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if bracket and (not rest or rest.startswith(":")):
            return host, rest[1:] if rest else None
        return text, None
    if text.count(":") > 1:
        return text, None
    host, colon, port = text.partition(":")
    return host, port if colon else None


def _address(text: str) -> str | None:
    import ipaddress  # imported here to keep the start of every program fast

    inner = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    try:
        return None if "%" in inner else str(ipaddress.ip_address(inner))
    except ValueError:
        return None


def _name(text: str) -> str | None:
    name = text.rstrip(".").lower()
    try:
        if not name.isascii():
            # The standard library has only IDNA 2003, which turns faß.de into fass.de, a different domain.
            import idna  # imported here to keep the start of every program fast

            star, rest = ("*.", name[2:]) if name.startswith("*.") else ("", name)
            name = star + idna.encode(rest, uts46=True, std3_rules=True).decode("ascii")
    except UnicodeError:
        return None
    good = len(name) <= 253 and _HOST_NAME.match(name) and not _NUMERIC_END.match(name)
    return name if good else None


def _host_of(text: str) -> str | None:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(text if "://" in text else f"//{text}")
        ports = () if parts.port in (None, 80, 443) else (parts.port,)
        return str(domain_rule(parts.hostname or "", *ports))
    except (ValueError, PolicyViolation):
        return None


# Which domains a run lacked, in their one spelling. Pure; names come from the program, so they are checked.

#: Refusals that a domain, or a domain with this port, would lift.
_LIFTED = ("domain_not_allowed", "port_not_allowed")
_USUAL_PORTS = (80, 443)


def lacked_domains(result: ExecResult) -> tuple[Wanted, ...]:
    """Return each domain that a run was refused or asked for in vain, once."""
    refused = [violation.subject for violation in result.violations if violation.rule in _LIFTED]
    noted = [note.wanted for note in result.notes if note.wanted is not None]
    lacked = [wanted.what for wanted in noted if wanted.kind is WantedKind.DOMAIN]
    found = []
    for name in (*refused, *lacked):
        with contextlib.suppress(PolicyViolation):  # the program named what is no domain
            found.append(Wanted(WantedKind.DOMAIN, rule_text(parse_rule(name))))
    return tuple(dict.fromkeys(found))


def rule_text(rule: NetworkRule) -> str:
    """Return a rule as users write it: without a port that is usual."""
    return str(NetworkRule(rule.domain) if rule.ports and rule.ports[0] in _USUAL_PORTS else rule)
