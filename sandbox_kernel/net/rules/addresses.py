"""Parses IP addresses and decides whether a sandbox may reach them.

An address must pass both the tables below and ``is_global``. That property alone is not enough: its answers have
changed between Python releases, and it counts 6to4, NAT64-local and the cloud wire servers as global.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

IPAddress = IPv4Address | IPv6Address

_V4_REFUSED = tuple(
    (IPv4Network(network), name)
    for network, name in (
        ("0.0.0.0/8", "this-network"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "carrier-grade NAT"),
        ("127.0.0.0/8", "loopback"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "protocol assignment"),
        ("192.0.2.0/24", "documentation"),
        ("192.88.99.0/24", "6to4 relay"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "benchmarking"),
        ("198.51.100.0/24", "documentation"),
        ("203.0.113.0/24", "documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
    )
)
_V6_REFUSED = tuple(
    (IPv6Network(network), name)
    for network, name in (
        ("::1/128", "loopback"),
        ("::/128", "unspecified"),
        ("::/96", "IPv4-compatible"),
        ("64:ff9b:1::/48", "local NAT64"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "site-local"),
        ("fc00::/7", "unique local"),
        ("ff00::/8", "multicast"),
        ("2001::/32", "Teredo"),
        ("2001::/23", "protocol assignment"),
        ("2001:db8::/32", "documentation"),
        ("2002::/16", "6to4"),
        ("3fff::/20", "documentation"),
    )
)
_V6_UNICAST = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")
_COMPATIBLE = IPv6Network("::/96")
#: Bits 32 to 63 of an ISATAP address. A host with ISATAP tunnels it, under any prefix, to the IPv4 address in its end.
_ISATAP = (0x00005EFE, 0x02005EFE)

#: Addresses of cloud metadata services, which serve credentials. No policy can allow them. Some of them (Azure's wire
#: server) are public addresses.
_METADATA = frozenset(
    ip_address(text)
    for text in (
        "169.254.169.254",
        "169.254.170.2",
        "169.254.170.23",
        "169.254.0.23",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fd20:ce::254",
    )
)

_NUMBER = re.compile(r"(0x[0-9a-f]*|[0-9]+)\Z", re.IGNORECASE | re.ASCII)


def parse_ip_literal(host: str) -> IPAddress | None:
    """Return the address that a host spells in any notation that a C library or browser accepts; None for a name.

    Knows dotted, decimal, hexadecimal, octal and short forms (``2130706433``, ``0x7f.1``, ``0177.0.0.1``) and IPv6 with
    or without brackets. Raises ``ValueError`` for a host that ends in a number and is not an address.
    """
    if host.startswith("[") or ":" in host:
        inner = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        if "%" in inner:
            raise ValueError(f"{host!r} carries an interface scope")
        return IPv6Address(inner)
    parts = host.split(".")
    if not _NUMBER.match(parts[-1]):
        return None
    if len(parts) > 4:
        raise ValueError(f"{host!r} has too many parts for an IPv4 address")
    *heads, tail = [_number(part, host) for part in parts]
    if any(head > 255 for head in heads) or tail >= 256 ** (4 - len(heads)):
        raise ValueError(f"{host!r} is out of range for an IPv4 address")
    value = tail
    for index, head in enumerate(heads):
        value += head << (8 * (3 - index))
    return IPv4Address(value)


def _number(part: str, host: str) -> int:
    if not _NUMBER.match(part) or len(part) > 20:
        raise ValueError(f"{host!r} is neither a name nor an IPv4 address")
    if part[:2].lower() == "0x":
        return int(part[2:] or "0", 16)
    try:
        return int(part, 8) if part.startswith("0") else int(part)
    except ValueError:
        raise ValueError(f"{host!r} has a part that is no octal number") from None


def embedded_ipv4(address: IPv6Address) -> tuple[IPv4Address, ...]:
    """Return every IPv4 address that this IPv6 address would be translated or tunnelled to."""
    found: list[IPv4Address] = []
    if address.ipv4_mapped is not None:
        found.append(address.ipv4_mapped)
    if address.sixtofour is not None:
        found.append(address.sixtofour)
    if address.teredo is not None:
        found.extend(address.teredo)
    if address in _NAT64 or (address in _COMPATIBLE and int(address) > 1):
        found.append(IPv4Address(int(address) & 0xFFFFFFFF))
    if int(address) >> 32 & 0xFFFFFFFF in _ISATAP:
        found.append(IPv4Address(int(address) & 0xFFFFFFFF))
    return tuple(found)


def is_metadata(address: IPAddress) -> bool:
    """Return whether this is a cloud metadata service, directly or embedded in IPv6."""
    if address in _METADATA:
        return True
    return isinstance(address, IPv6Address) and any(inner in _METADATA for inner in embedded_ipv4(address))


def why_not_public(address: IPAddress) -> str | None:
    """Return None for a public Internet address, else a phrase such as "a loopback address"."""
    if is_metadata(address):
        return "a cloud metadata address"
    if isinstance(address, IPv4Address):
        for network, name in _V4_REFUSED:
            if address in network:
                return f"a {name} address"
        return None if address.is_global else "not a public address"
    for inner in embedded_ipv4(address):
        reason = why_not_public(inner)
        if reason is not None:
            return f"{reason} ({inner}) inside IPv6"
    if address.ipv4_mapped is not None or address in _NAT64:
        return None
    for network6, name in _V6_REFUSED:
        if address in network6:
            return f"a {name} address"
    return None if address in _V6_UNICAST and address.is_global else "not a public address"


def is_public(address: str | IPAddress) -> bool:
    """Return whether a sandbox that is allowed the public Internet may connect to this address."""
    return why_not_public(ip_address(address) if isinstance(address, str) else address) is None
