"""Which hosts may be reached, how, and how much: one set of rules for the client, the proxy and the wasm fetch server.

Deny by default. Everything here is pure: text in, ``Decision`` out. Nothing is resolved or sent. ``resolve.py`` later
checks the addresses of a name against the same policy.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from sandbox_kernel.errors import FetchError, PolicyViolation
from sandbox_kernel.limits import MIB
from sandbox_kernel.model import Violation
from sandbox_kernel.net.targets import IPAddress, Target, is_metadata, normalise_host, parse_url, why_not_public
from sandbox_kernel.policy import SandboxPolicy
from sandbox_kernel.policy.network_rule import NetworkRule, domain_rule, parse_rule


class FetchRefused(FetchError):
    """The policy refused a request. A ``FetchError`` that also carries the ``Violation`` for the result."""

    def __init__(self, violation: Violation) -> None:
        super().__init__(violation.sentence, rule=violation.rule)
        self.violation = violation


def refused(rule: str, subject: str, reason: str, remedy: str = "") -> FetchRefused:
    """Return a ``FetchRefused`` for a violation with these fields."""
    return FetchRefused(Violation(rule=rule, subject=subject, reason=reason, remedy=remedy))


#: Most distinct violations that are kept: bounds host memory and the notebook when a program is refused in a loop.
MAX_KEPT = 100


class ViolationLog:
    """Collects the violations of one sandbox for its result, each once, in order; safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, str], Violation] = {}

    def add(self, violation: Violation) -> None:
        """Add a violation unless the same rule already refused the same subject, or the log is full."""
        with self._lock:
            if len(self._kept) < MAX_KEPT:
                self._kept.setdefault((violation.rule, violation.subject), violation)

    def take(self) -> tuple[Violation, ...]:
        """Return the violations since the last call and clear the log. A session calls it after each cell."""
        with self._lock:
            found, self._kept = tuple(self._kept.values()), {}
            return found

    def snapshot(self) -> tuple[Violation, ...]:
        """Return all violations in the log."""
        with self._lock:
            return tuple(self._kept.values())


#: One entry of an allow or block list.
DomainPattern = NetworkRule

__all__ = ["DEFAULT_METHODS", "Decision", "DomainPattern", "FetchPolicy"]

DEFAULT_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
#: Endings of names that exist only inside local networks; ``allow_all_public`` never includes them.
_LOCAL_ENDINGS = ("localhost", "local", "localdomain", "internal", "intranet", "lan", "corp", "home", "home.arpa")


@dataclass(frozen=True)
class Decision:
    """The policy's answer to one request: the target to connect to, or the violation.

    ``target`` is None only when the request cannot be parsed. ``limit_key`` is the key of the rate limit: the
    allow-list entry, so that all hosts of one wildcard share one budget.
    """

    target: Target | None = None
    limit_key: str = ""
    violation: Violation | None = None

    @property
    def allowed(self) -> bool:
        """Whether the request may go on to name resolution."""
        return self.violation is None

    def require(self) -> Target:
        """Return the target of an allowed request. Raises ``FetchRefused`` for a denied one."""
        if self.violation is not None:
            raise FetchRefused(self.violation)
        assert self.target is not None
        return self.target


@dataclass(frozen=True, kw_only=True)
class FetchPolicy:
    """The network rules of a sandbox or client. ``FetchPolicy()`` allows nothing.

    Cloud metadata addresses are refused under every policy.

    Args:
        allowed_domains: Hosts that may be reached, as ``example.org``, ``*.example.org`` or ``example.org:8443``.
        blocked_domains: Hosts that are refused even if ``allowed_domains`` or ``allow_all_public`` allows them.
        allow_all_public: Allow every host with a public address, on ``ports``.
        deny_private_ips: Refuse hosts of ``allowed_domains`` that have a private address. False allows those.
        allow_private_for: Hosts that may have a private address, or such addresses, for example a local mirror.
        ports: Ports that may be reached where a domain names none.
        methods: HTTP methods that may be used.
        schemes: URL schemes that may be used: ``https``, ``http`` or both.
        max_request_body_bytes: Largest request body in bytes.
        max_response_body_bytes: Largest response body in bytes; a larger response is refused.
        connect_timeout_s: Seconds to resolve a name, and again to open a connection.
        request_timeout_s: Seconds for one fetch, its redirects included.
        max_redirects: Redirects that one fetch follows.
        max_concurrent: Requests or connections at the same time.
        max_requests_per_minute: Requests in a minute to one entry of ``allowed_domains`` or to one host.
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
        allow, block = domain_patterns(self.allowed_domains), domain_patterns(self.blocked_domains)
        private = frozenset(_private_entry(entry) for entry in self.allow_private_for)
        ports = domain_rule("example.org", *self.ports).ports
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
            raise PolicyViolation(f"scheme {unknown[0]!r} cannot be allowed; only https and http are supported")
        if "CONNECT" in self.methods:
            raise PolicyViolation("method CONNECT cannot be allowed; programs tunnel through the egress proxy")
        _check_numbers(self)

    @classmethod
    def from_sandbox_policy(cls, policy: SandboxPolicy) -> FetchPolicy:
        """Return the rules of a sandbox policy: its domains (ports 80 and 443 by default), or all public addresses."""
        return cls(allowed_domains=policy.network_rules, allow_all_public=policy.network)

    def check_url(self, url: str) -> Decision:
        """Decide on a URL by scheme, block list, literal address, allow list and port, in that order."""
        try:
            target = parse_url(url)
        except FetchError as error:
            return Decision(violation=Violation(rule=error.rule, subject=ascii(url)[:200], reason=str(error)))
        if target.scheme not in self.schemes:
            reason = f"scheme {target.scheme!r} is not allowed, only {' and '.join(self.schemes) or 'nothing'}"
            remedy = f"FetchPolicy(schemes={(*self.schemes, target.scheme)!r})"
            return _denied(target, "scheme_not_allowed", reason, remedy, target.url)
        return self.check_target(target)

    def check_request(self, method: str, url: str, body_bytes: int = 0) -> Decision:
        """Decide on a request: first its URL, then its method and the size of its body."""
        decision = self.check_url(url)
        if not decision.allowed:
            return decision
        assert decision.target is not None
        subject = f"{method} {decision.target.url}"[:300]
        if method.upper() not in self.methods:
            reason = f"method {method!r} is not allowed, only {' '.join(self.methods) or 'none'}"
            remedy = f"FetchPolicy(methods={(*self.methods, method.upper())!r})"
            return _denied(decision.target, "method_not_allowed", reason, remedy, subject)
        if body_bytes > self.max_request_body_bytes:
            reason = f"the body has {body_bytes} bytes, at most {self.max_request_body_bytes} may be sent"
            remedy = f"FetchPolicy(max_request_body_bytes={body_bytes})"
            return _denied(decision.target, "request_body_too_large", reason, remedy, subject)
        return decision

    def check_target(self, target: Target) -> Decision:
        """Decide on a host and port, also of CONNECT. ``policy/network_rule.py`` lists rules that a domain lifts."""
        for pattern in self._block:
            if pattern.matches(target.host) and (not pattern.ports or target.port in pattern.ports):
                reason = f"{target.host} is on the block list as {pattern.domain}"
                return _denied(target, "domain_blocked", reason, f"remove {pattern.domain!r} from blocked_domains")
        if target.address is not None:
            violation = self.judge_address(target, target.address)
            if violation is not None:
                return Decision(target, violation=violation)
        matching = [pattern for pattern in self._allow if pattern.matches(target.host)]
        for pattern in matching:
            if target.port in (pattern.ports or self.ports):
                return Decision(target, pattern.domain)
        allow_it = f"--allow-net {target.endpoint}"
        if not matching and not self.allow_all_public:
            listed = ", ".join(dict.fromkeys(pattern.domain for pattern in self._allow)) or "nothing"
            reason = f"{target.host} is not on the allow list ({listed[:200]})"
            return _denied(target, "domain_not_allowed", reason, allow_it)
        if self.allow_all_public and not matching and target.host not in self._private and _is_local_name(target):
            reason = f"{target.host} is a name of a local network, not of the public Internet"
            return _denied(target, "private_ip_blocked", reason, _private_remedy(target.host))
        if self.allow_all_public and target.port in self.ports:
            return Decision(target, target.host)
        ports = [port for pattern in matching for port in (pattern.ports or self.ports)] or list(self.ports)
        reason = f"port {target.port} of {target.host} is not allowed, only {', '.join(map(str, sorted(set(ports))))}"
        return _denied(target, "port_not_allowed", reason, allow_it)

    def judge_address(self, target: Target, address: IPAddress, *, own: bool = False) -> Violation | None:
        """Return the violation of reaching the target at this address, of a URL or a resolver; None if allowed.

        ``own``: it is one of this machine, whose services may trust whoever speaks to them from here.
        """
        reason = why_not_public(address) or ("an address of this machine" if own else None)
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


def _denied(target: Target, rule: str, reason: str, remedy: str, subject: str = "") -> Decision:
    violation = Violation(rule=rule, subject=subject or target.endpoint, reason=reason, remedy=remedy)
    return Decision(target, violation=violation)


def _private_remedy(host: str) -> str:
    return (
        f"no notebook option opens local networks; the host program may set allow_private_for=({host!r},), "
        f"the command line --allow-private {host}"
    )


def _is_local_name(target: Target) -> bool:
    is_local = "." not in target.host or any(target.host.endswith("." + ending) for ending in _LOCAL_ENDINGS)
    return target.address is None and is_local


def domain_patterns(entries: object) -> tuple[DomainPattern, ...]:
    """Return the entries of a list as patterns. Raises ``PolicyViolation`` for what is no list of them."""
    if isinstance(entries, str) or not isinstance(entries, Iterable):
        raise PolicyViolation(f"a domain list must be a sequence of patterns, got {entries!r}; write ('example.org',)")
    found: list[NetworkRule] = []
    for entry in entries:
        if not isinstance(entry, NetworkRule | str):
            raise PolicyViolation(f"{entry!r} is not a domain pattern; write example.org or *.example.org:443")
        rule = parse_rule(entry) if isinstance(entry, str) else entry
        found.append(domain_rule(rule.domain, *rule.ports))
    return tuple(found)


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
    least = {"max_request_body_bytes": 0, "max_response_body_bytes": 0, "max_redirects": 0, "max_concurrent": 1,
             "max_requests_per_minute": 1}  # fmt: skip
    for name, lowest in least.items():
        value = getattr(policy, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < lowest:
            raise PolicyViolation(f"{name} must be a whole number of at least {lowest}, got {value!r}")
    for name in ("connect_timeout_s", "request_timeout_s"):
        value = getattr(policy, name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
            raise PolicyViolation(f"{name} must be a finite number of seconds above 0, got {value!r}")


# Limits requests at the same time, and requests a minute to one domain. A request over a limit is refused at once.

WINDOW_S = 60.0
#: Most domains that are counted at once. A program that uses more within a minute is refused.
MAX_KEYS = 4096


class RateLimit:
    """The counters of one client or proxy. Safe to use from any thread."""

    def __init__(self, policy: FetchPolicy, clock: Callable[[], float] = time.monotonic) -> None:
        self._policy = policy
        self._clock = clock
        self._lock = threading.Lock()
        self._running = 0
        self._windows: dict[str, deque[float]] = {}

    @contextmanager
    def slot(self, subject: str) -> Iterator[None]:
        """Hold one of the ``max_concurrent`` places. Raises ``FetchRefused`` when all are taken."""
        with self._lock:
            if self._running >= self._policy.max_concurrent:
                raise _over(subject, f"{self._running} are already under way", "max_concurrent")
            self._running += 1
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1

    def count(self, key: str, subject: str) -> None:
        """Count one request against the minute of ``key``, an allow-list entry or a host. Raises ``FetchRefused``."""
        most = self._policy.max_requests_per_minute
        with self._lock:
            begin = self._clock() - WINDOW_S
            if key not in self._windows and len(self._windows) >= MAX_KEYS:
                self._windows = {old: window for old, window in self._windows.items() if window[-1] > begin}
                if len(self._windows) >= MAX_KEYS:
                    why = f"{MAX_KEYS} different hosts within a minute are the most"
                    raise _over(subject, why, "max_requests_per_minute")
            window = self._windows.setdefault(key, deque())
            while window and window[0] <= begin:
                window.popleft()
            if len(window) >= most:
                why = f"{most} requests to {key} within a minute are the most"
                raise _over(subject, why, "max_requests_per_minute")
            window.append(begin + WINDOW_S)


def _over(subject: str, reason: str, name: str) -> FetchRefused:
    return refused("rate_limit_exceeded", subject, reason, f"wait, or raise FetchPolicy({name}=…)")
