"""Who may be talked to, how, and how much: one set of rules for the client, the proxy and the wasm bridge.

Deny by default. Everything here is pure: text in, ``Decision`` out, nothing is resolved or sent. What a name resolves
to is judged later, by ``resolve``, with the same policy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from sandbox_kernel.errors import FetchError, PolicyViolation
from sandbox_kernel.limits import MIB
from sandbox_kernel.model import Violation
from sandbox_kernel.net.rules.addresses import IPAddress, is_metadata, why_not_public
from sandbox_kernel.net.rules.domain_pattern import DomainPattern
from sandbox_kernel.net.rules.refusal import FetchRefused
from sandbox_kernel.net.rules.targets import Target, normalise_host, parse_url
from sandbox_kernel.policy import SandboxPolicy

__all__ = ["DEFAULT_METHODS", "Decision", "DomainPattern", "FetchPolicy"]

DEFAULT_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
#: Names that only mean something inside a local network; "all public addresses" never includes them.
_LOCAL_ENDINGS = ("localhost", "local", "localdomain", "internal", "intranet", "lan", "corp", "home", "home.arpa")


@dataclass(frozen=True)
class Decision:
    """What the policy says to one request: a target to go on with, or the violation that it would be.

    ``target`` is None only for what cannot be parsed.
    ``limit_key`` is what the rate limit counts by: the allow-list entry, so that one wildcard is one budget.
    """

    target: Target | None = None
    limit_key: str = ""
    violation: Violation | None = None

    @property
    def allowed(self) -> bool:
        """May the request go on to name resolution?"""
        return self.violation is None

    def require(self) -> Target:
        """The target of an allowed request; raises ``FetchRefused`` for a denied one."""
        if self.violation is not None:
            raise FetchRefused(self.violation)
        assert self.target is not None
        return self.target


@dataclass(frozen=True, kw_only=True)
class FetchPolicy:
    """The rules of egress. ``FetchPolicy()`` allows nothing.

    ``allow_private_for`` names hosts that may resolve to non-public addresses, or such addresses themselves (a mirror
    in the house, a loopback server under test). ``deny_private_ips=False`` extends that to every host in
    ``allowed_domains``. ``allow_all_public`` implies neither, and cloud metadata addresses stay refused in any case.
    """

    allowed_domains: Iterable[DomainPattern | str] = ()
    blocked_domains: Iterable[DomainPattern | str] = ()
    allow_all_public: bool = False
    deny_private_ips: bool = True
    allow_private_for: Iterable[str] = ()
    ports: tuple[int, ...] = (80, 443)
    methods: tuple[str, ...] = DEFAULT_METHODS
    schemes: tuple[str, ...] = ("https", "http")
    max_request_body_bytes: int = 10 * MIB
    max_response_body_bytes: int = 50 * MIB
    connect_timeout_s: float = 10.0
    request_timeout_s: float = 30.0
    max_redirects: int = 10
    max_concurrent: int = 50
    max_requests_per_minute: int = 500
    _allow: tuple[DomainPattern, ...] = field(init=False, repr=False, compare=False, default=())
    _block: tuple[DomainPattern, ...] = field(init=False, repr=False, compare=False, default=())
    _private: frozenset[str] = field(init=False, repr=False, compare=False, default=frozenset())

    def __post_init__(self) -> None:
        allow, block = _patterns(self.allowed_domains), _patterns(self.blocked_domains)
        private = frozenset(_private_entry(entry) for entry in self.allow_private_for)
        # DomainPattern knows what a port is: borrow its check and its words.
        ports = DomainPattern("example.org", tuple(self.ports)).ports
        values = {
            "allowed_domains": allow,
            "blocked_domains": block,
            "_allow": allow,
            "_block": block,
            "allow_private_for": tuple(sorted(private)),
            "_private": private,
            "ports": ports,
            "methods": tuple(str(method).upper() for method in self.methods),
            "schemes": tuple(str(scheme).lower() for scheme in self.schemes),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        unknown = [scheme for scheme in self.schemes if scheme not in ("http", "https")]
        if unknown:
            raise PolicyViolation(f"scheme {unknown[0]!r} cannot be allowed; only https and http are spoken here")
        if "CONNECT" in self.methods:
            raise PolicyViolation("method CONNECT cannot be allowed; programs tunnel through the egress proxy")
        _check_numbers(self)

    @classmethod
    def from_sandbox_policy(cls, policy: SandboxPolicy) -> FetchPolicy:
        """The egress rules of a sandbox: its domains (80 and 443 unless it names ports), or all public addresses."""
        allowed = tuple(DomainPattern(rule.domain, rule.ports) for rule in policy.network_rules)
        return cls(allowed_domains=allowed, allow_all_public=policy.network)

    def check_url(self, url: str) -> Decision:
        """May this URL be reached at all? Scheme, block list, literal address, allow list and port, in that order."""
        try:
            target = parse_url(url)
        except FetchError as error:
            return Decision(violation=Violation(rule=error.rule, subject=ascii(url)[:200], reason=str(error)))
        if target.scheme not in self.schemes:
            allowed = " and ".join(self.schemes) or "nothing"
            return _denied(
                target,
                "scheme_not_allowed",
                target.url,
                f"scheme {target.scheme!r} is not allowed, only {allowed}",
                f"FetchPolicy(schemes={(*self.schemes, target.scheme)!r})",
            )
        return self.check_target(target)

    def check_request(self, method: str, url: str, body_bytes: int = 0) -> Decision:
        """May this request be sent? The URL first, then the method and the size of the body."""
        decision = self.check_url(url)
        if not decision.allowed:
            return decision
        assert decision.target is not None
        subject = f"{method} {decision.target.url}"[:300]
        if method.upper() not in self.methods:
            return _denied(
                decision.target,
                "method_not_allowed",
                subject,
                f"method {method!r} is not allowed, only {' '.join(self.methods) or 'none'}",
                f"FetchPolicy(methods={(*self.methods, method.upper())!r})",
            )
        if body_bytes > self.max_request_body_bytes:
            return _denied(
                decision.target,
                "request_body_too_large",
                subject,
                f"the body has {body_bytes} bytes, at most {self.max_request_body_bytes} may be sent",
                f"FetchPolicy(max_request_body_bytes={body_bytes})",
            )
        return decision

    def check_target(self, target: Target) -> Decision:
        """May this host and port be connected to? Also used for CONNECT, where there is no URL."""
        for pattern in self._block:
            if pattern.matches(target.host) and (not pattern.ports or target.port in pattern.ports):
                return _denied(
                    target,
                    "domain_blocked",
                    target.endpoint,
                    f"{target.host} is on the block list as {pattern.name}",
                    f"remove {pattern.name!r} from blocked_domains",
                )
        if target.address is not None:
            violation = self.judge_address(target, target.address)
            if violation is not None:
                return Decision(target, violation=violation)
        matching = [pattern for pattern in self._allow if pattern.matches(target.host)]
        for pattern in matching:
            if target.port in (pattern.ports or self.ports):
                return Decision(target, pattern.name)
        if not matching and not self.allow_all_public:
            listed = ", ".join(dict.fromkeys(pattern.name for pattern in self._allow)) or "nothing"
            reason = f"{target.host} is not on the allow list ({listed[:200]})"
            return _denied(target, "domain_not_allowed", target.endpoint, reason, _allow_option(target))
        if self.allow_all_public and not matching and target.host not in self._private and _is_local_name(target):
            reason = f"{target.host} is a name of a local network, not of the public Internet"
            return _denied(target, "private_ip_blocked", target.endpoint, reason, _private_remedy(target.host))
        if self.allow_all_public and target.port in self.ports:
            return Decision(target, target.host)
        ports = [port for pattern in matching for port in (pattern.ports or self.ports)] or list(self.ports)
        reason = f"port {target.port} of {target.host} is not allowed, only {', '.join(map(str, sorted(set(ports))))}"
        return _denied(target, "port_not_allowed", target.endpoint, reason, _allow_option(target))

    def judge_address(self, target: Target, address: IPAddress) -> Violation | None:
        """May the target be reached at this address? Called for literals here and for every answer of a resolver."""
        reason = why_not_public(address)
        if reason is None:
            return None
        said = f"{address} is {reason}" if target.address is not None else f"it resolves to {address}, {reason}"
        if is_metadata(address):
            return Violation(rule="private_ip_blocked", subject=target.endpoint, reason=f"{said}; these stay refused")
        named = target.host in self._private or str(address) in self._private
        listed = not self.deny_private_ips and any(pattern.matches(target.host) for pattern in self._allow)
        if named or listed:
            return None
        remedy = _private_remedy(target.host)
        return Violation(rule="private_ip_blocked", subject=target.endpoint, reason=said, remedy=remedy)


def _denied(target: Target, rule: str, subject: str, reason: str, remedy: str) -> Decision:
    return Decision(target, violation=Violation(rule=rule, subject=subject, reason=reason, remedy=remedy))


def _allow_option(target: Target) -> str:
    return f"--allow-net {target.endpoint}"


def _private_remedy(host: str) -> str:
    return (
        f"no notebook option opens local networks; the host program may set allow_private_for=({host!r},), "
        f"the command line --allow-private {host}"
    )


def _is_local_name(target: Target) -> bool:
    if target.address is not None:
        return False
    return "." not in target.host or any(target.host.endswith("." + ending) for ending in _LOCAL_ENDINGS)


def _patterns(entries: object) -> tuple[DomainPattern, ...]:
    if isinstance(entries, str) or not isinstance(entries, Iterable):
        raise PolicyViolation(f"a domain list must be a sequence of patterns, got {entries!r}; write ('example.org',)")
    return tuple(entry if isinstance(entry, DomainPattern) else DomainPattern.parse(entry) for entry in entries)


def _private_entry(entry: object) -> str:
    try:
        if not isinstance(entry, str):
            raise ValueError("it is not text")
        name, address = normalise_host(entry)
    except ValueError as error:
        raise PolicyViolation(f"allow_private_for entry {entry!r} must be a host name or IP address: {error}") from None
    if address is not None and is_metadata(address):
        raise PolicyViolation(
            f"allow_private_for cannot name {entry!r}: it is a cloud metadata address, always refused"
        )
    return name


def _check_numbers(policy: FetchPolicy) -> None:
    for name, least in (
        ("max_request_body_bytes", 0),
        ("max_response_body_bytes", 0),
        ("max_redirects", 0),
        ("max_concurrent", 1),
        ("max_requests_per_minute", 1),
    ):
        value = getattr(policy, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise PolicyViolation(f"{name} must be a whole number of at least {least}, got {value!r}")
    for name in ("connect_timeout_s", "request_timeout_s"):
        value = getattr(policy, name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
            raise PolicyViolation(f"{name} must be a finite number of seconds above 0, got {value!r}")
