"""One line of what a program may reach: a domain and its ports, as policies hold it and as people write it.

``parse_rule`` is what every ``--allow-net`` goes through, in notebooks and on the command line. Most mistakes are
copies from an address bar, so an error says what should have been written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sandbox_kernel.errors import PolicyViolation

_HOST_NAME = re.compile(r"(\*\.)?([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*\Z")
#: A name never ends like this: C libraries take it for an address, in notations that hide which.
_NUMERIC_END = re.compile(r"(.*\.)?(0x[0-9a-f]*|[0-9]+)\Z")
_FORM = "for example example.org or *.example.org"


@dataclass(frozen=True)
class NetworkRule:
    """A domain that may be reached through the proxy; no ports means 80 and 443."""

    domain: str
    ports: tuple[int, ...] = ()

    def __str__(self) -> str:
        """The rule as it is written after ``--allow-net``; with several ports, the first."""
        host = f"[{self.domain}]" if ":" in self.domain else self.domain
        return f"{host}:{self.ports[0]}" if self.ports else host


def domain_rule(domain: str, *ports: int) -> NetworkRule:
    """The rule for a domain (``*.example.org`` for those below it) or an address; ``PolicyViolation`` for neither."""
    text = domain.strip() if isinstance(domain, str) else ""
    name = _address(text) or _name(text)
    if name is None:
        raise PolicyViolation(f"{_shown(domain)} is not a domain name; {_FORM}")
    for port in ports:
        if isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65535:
            raise PolicyViolation(f"port {port!r} for {domain} must be a number from 1 to 65535")
    return NetworkRule(name, tuple(ports))


def parse_rule(text: str) -> NetworkRule:
    """Read ``example.org``, ``*.example.org:8443``, ``192.0.2.1`` or ``[2001:db8::1]:443``."""
    written = text.strip()
    if written == "*":
        raise PolicyViolation("'*' is not a domain; a policy file with allowNetwork = true opens every public address")
    if "://" in written or "/" in written or "@" in written:
        host = _host_of(written)
        meant = f"give its domain alone: {host}" if host is not None else f"give a domain alone, {_FORM}"
        raise PolicyViolation(f"{_shown(text)} is a URL or part of one; {meant}")
    if "," in written or ";" in written or len(written.split()) > 1:
        raise PolicyViolation(f"{_shown(text)} is more than one domain; repeat the option for each")
    host, port = _split(written)
    if port is None:
        return domain_rule(host)
    if not (port.isascii() and port.isdigit()) or not 1 <= len(port) <= 5 or not 1 <= int(port) <= 65535:
        raise PolicyViolation(f"{_shown(text)}: port {_shown(port)} must be a number from 1 to 65535, like 8443")
    return domain_rule(host, int(port))


def _split(text: str) -> tuple[str, str | None]:
    """Host and port; an IPv6 address has colons of its own, and brackets where a port follows."""
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
    import ipaddress  # every start of a program would pay for it

    inner = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    try:
        return None if "%" in inner else str(ipaddress.ip_address(inner))
    except ValueError:
        return None


def _name(text: str) -> str | None:
    name = text.rstrip(".").lower()
    try:
        # The standard library knows only IDNA 2003, which turns faß.de into fass.de: somebody else's domain.
        name = name if name.isascii() else _wildcard_idna(name)
    except UnicodeError:
        return None
    good = len(name) <= 253 and _HOST_NAME.match(name) and not _NUMERIC_END.match(name)
    return name if good else None


def _wildcard_idna(name: str) -> str:
    """The ASCII form of an international domain, with or without a leading ``*.``; ``UnicodeError`` if it has none."""
    import idna  # every start of a program would pay for it

    star, rest = ("*.", name[2:]) if name.startswith("*.") else ("", name)
    return star + idna.encode(rest, uts46=True, std3_rules=True).decode("ascii")


def _host_of(text: str) -> str | None:
    """The rule that somebody who pasted a URL meant, where there is one."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(text if "://" in text else f"//{text}")
        ports = () if parts.port in (None, 80, 443) else (parts.port,)
        return str(domain_rule(parts.hostname or "", *ports))
    except (ValueError, PolicyViolation):
        return None


def _shown(text: object) -> str:
    shown = repr(text)
    return shown if len(shown) <= 100 else shown[:100] + "…"
