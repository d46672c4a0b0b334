"""One entry of an allow or block list: a host, or all hosts below a domain, and their ports."""

from __future__ import annotations

from dataclasses import dataclass

from sandbox_kernel.errors import PolicyViolation
from sandbox_kernel.net.rules.targets import normalise_host


@dataclass(frozen=True)
class DomainPattern:
    """An exact host (``example.org``, ``8.8.8.8``) or every host below one (``*.example.org``, not ``example.org``).

    Without ports, the policy's ports apply in an allow list, and every port in a block list.
    """

    name: str
    ports: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        text: object = self.name
        if not isinstance(text, str) or text.strip() in ("", "*", "*."):
            raise PolicyViolation(
                f"{text!r} is not a domain pattern; write example.org or *.example.org, "
                "or say allow_all_public=True for every public address"
            )
        wildcard = text.strip().startswith("*.")
        try:
            name, address = normalise_host(text.strip()[2:] if wildcard else text.strip())
        except ValueError as error:
            raise PolicyViolation(
                f"{text!r} is not a domain pattern: {error}; write example.org or *.example.org"
            ) from None
        if wildcard and address is not None:
            raise PolicyViolation(f"{text!r} puts a wildcard before an IP address; name the addresses one by one")
        for port in self.ports:
            if isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65535:
                raise PolicyViolation(f"port {port!r} for {text} must be a number from 1 to 65535")
        object.__setattr__(self, "name", f"*.{name}" if wildcard else name)
        object.__setattr__(self, "ports", tuple(self.ports))

    @classmethod
    def parse(cls, text: str) -> DomainPattern:
        """Read ``example.org``, ``*.example.org:8443`` or ``[2606:4700::1111]:443``."""
        if not isinstance(text, str):
            raise PolicyViolation(f"{text!r} is not a domain pattern; write example.org or *.example.org:443")
        name, separator, port = text.strip().rpartition(":")
        if not separator or name.endswith(":") or (":" in name and not name.endswith("]")):
            return cls(text)
        if not (port.isascii() and port.isdigit()):
            raise PolicyViolation(f"{text!r} has no number after the colon; write {name}:443")
        return cls(name, (int(port),))

    def matches(self, host: str) -> bool:
        """Return whether the pattern covers this canonical host (of a ``Target``)."""
        if self.name.startswith("*."):
            return host.endswith(self.name[1:])
        return host == self.name
