"""Parses the URL or ``host:port`` of a program into one canonical target, or refuses it.

Every later check and the connection use the target, never the text: filters are bypassed where two parsers disagree
about a URL. The parser is strict: it accepts no user name, no percent-encoded or backslashed host and no empty label,
and it writes every notation of an IP address and of an international name in one way.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from urllib.parse import quote

import idna

from sandbox_kernel.errors import FetchError

# Parses IP addresses and decides whether a sandbox may reach them.
#
# An address must pass both the tables below and ``is_global``. That property alone is not enough: its answers have
# changed between Python releases, and it counts 6to4, NAT64-local and the cloud wire servers as global.

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


MAX_URL_CHARS = 16 * 1024
DEFAULT_PORTS = {"http": 80, "https": 443}

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):(?://([^/?#]*))?([^?#]*)(\?[^#]*)?(?:#.*)?\Z", re.DOTALL)
_LABEL = r"[a-z0-9_](?:[a-z0-9_\-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\Z")
_CONTROL = re.compile(r"[\x00-\x20\x7f]")
_PATH_SAFE = "%/:?@!$&'()*+,;=-._~[]|^{}"


@dataclass(frozen=True)
class Target:
    """The destination of a request. ``address`` is set when the host is an IP address; ``path`` starts with /."""

    scheme: str
    host: str
    port: int
    path: str = "/"
    address: IPAddress | None = None

    @property
    def authority(self) -> str:
        """The value of the Host header: brackets around IPv6, no port where it is the default of the scheme."""
        return self.host_in_brackets if DEFAULT_PORTS.get(self.scheme) == self.port else self.endpoint

    @property
    def host_in_brackets(self) -> str:
        """The host as it stands in a URL."""
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def endpoint(self) -> str:
        """``host:port``, the form of ``--allow-net``."""
        return f"{self.host_in_brackets}:{self.port}"

    @property
    def url(self) -> str:
        """The canonical URL; it parses to an equal target."""
        return f"{self.scheme}://{self.authority}{self.path}"

    @property
    def origin(self) -> tuple[str, str, int]:
        """Scheme, host and port. A redirect to another origin loses most headers."""
        return self.scheme, self.host, self.port


def _invalid(what: str, why: str) -> FetchError:
    return FetchError(f"invalid URL {_shown(what)}: {why}", rule="invalid_url")


def _shown(text: str) -> str:
    return ascii(text if len(text) <= 200 else text[:200] + "…")


def normalise_host(text: str) -> tuple[str, IPAddress | None]:
    """Return the canonical spelling of a host, and its address if it is one. Raises ``ValueError`` if it is neither."""
    host = text
    if len(host) > 1000:
        raise ValueError("the host is longer than any name")
    if not host.isascii():
        try:
            # This step may turn full-width digits and dots into an ASCII IP address; IDNA would refuse that.
            host = idna.uts46_remap(host, std3_rules=False, transitional=False)
            host = host if host.isascii() else idna.encode(host).decode("ascii")
        except (idna.IDNAError, UnicodeError) as error:
            raise ValueError(f"not an international domain name ({error})") from None
    host = host.lower()
    if host.endswith(".") and not host.startswith("["):
        host = host[:-1]
    if not host:
        raise ValueError("the host is empty")
    address = parse_ip_literal(host)
    if address is not None:
        return str(address), address
    if len(host) > 253 or not _NAME.match(host):
        raise ValueError(f"{_shown(text)} is not a host name")
    return host, None


def parse_url(url: str) -> Target:
    """Parse an absolute http or https URL; raises ``FetchError`` (``invalid_url``, ``scheme_not_allowed``)."""
    if not isinstance(url, str) or len(url) > MAX_URL_CHARS:
        raise FetchError(f"invalid URL: it must be text of at most {MAX_URL_CHARS} characters", rule="invalid_url")
    match = _URL.match(url)
    if match is None:
        raise _invalid(url, "it needs a scheme and a host, like https://example.org/path")
    scheme, authority, path, query = match[1].lower(), match[2], match[3], match[4] or ""
    if scheme not in DEFAULT_PORTS:
        raise FetchError(
            f"scheme {scheme!r} of {_shown(url)} is not allowed; use https or http", rule="scheme_not_allowed"
        )
    if not authority:
        raise _invalid(url, "it has no host; write https://example.org/path")
    host, port, address = _split_authority(url, authority, DEFAULT_PORTS[scheme])
    if _CONTROL.search(path + query):
        raise _invalid(url, "it holds a space or control character; percent-encode it")
    try:
        path = quote((path or "/") + query, safe=_PATH_SAFE)
    except UnicodeEncodeError:
        raise _invalid(url, "it holds a lone surrogate") from None
    return Target(scheme, host, port, path, address)


def parse_endpoint(text: str) -> Target:
    """Parse the ``host:port`` of a CONNECT request; the port is required."""
    if len(text) > 300 or not re.search(r":[0-9]{1,5}\Z", text, re.ASCII):
        raise _invalid(text, "it must be host:port")
    host, port, address = _split_authority(text, text, 0)
    return Target("https", host, port, "/", address)


def _split_authority(url: str, authority: str, default_port: int) -> tuple[str, int, IPAddress | None]:
    if "@" in authority:
        raise _invalid(url, "it carries a user name; send an Authorization header instead")
    if _CONTROL.search(authority) or "%" in authority or "\\" in authority:
        raise _invalid(url, "the host holds a character that no host name has")
    host, port_text = authority, ""
    if authority.startswith("["):
        host, bracket, rest = authority.partition("]")
        host += bracket
        if not bracket or (rest and not rest.startswith(":")):
            raise _invalid(url, "the brackets around an IPv6 address do not match")
        port_text = rest[1:]
    elif ":" in authority:
        host, _, port_text = authority.partition(":")
    if port_text and not re.fullmatch(r"[0-9]{1,5}", port_text, re.ASCII):
        raise _invalid(url, f"{_shown(port_text)} is not a port")
    port = int(port_text) if port_text else default_port
    if not 1 <= port <= 65535:
        raise _invalid(url, f"port {port} is not between 1 and 65535")
    try:
        name, address = normalise_host(host)
    except ValueError as error:
        raise _invalid(url, str(error)) from None
    return name, port, address
