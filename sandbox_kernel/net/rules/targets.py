"""Parses the URL or ``host:port`` of a program into one canonical target, or refuses it.

Every later check and the connection use the target, never the text: filters are bypassed where two parsers disagree
about a URL. The parser is strict: it accepts no user name, no percent-encoded or backslashed host and no empty label,
and it writes every notation of an IP address and of an international name in one way.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote

import idna

from sandbox_kernel.errors import FetchError
from sandbox_kernel.net.rules.addresses import IPAddress, parse_ip_literal

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
        """Scheme, host and port. A redirect to another origin loses its credentials."""
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
