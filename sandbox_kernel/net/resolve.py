"""Resolves a name once, checks every address, and returns the checked addresses.

The connection uses these pinned addresses and no second lookup, so a DNS answer that changes between check and use has
no effect. Only names that the policy allows are resolved: a denied name causes no DNS query.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from ipaddress import ip_address

import certifi

from sandbox_kernel.errors import FetchError
from sandbox_kernel.net.fetch_policy import FetchPolicy, FetchRefused
from sandbox_kernel.net.targets import IPAddress, Target

#: A function from host name and port to numeric addresses. It may block and may raise OSError.
Resolver = Callable[[str, int], list[str]]
#: Every address is checked; at most this many are tried.
MAX_TRIED = 6
#: Lookups at the same time for one sandbox. Each blocks a thread, so each sandbox has threads of its own.
LOOKUPS = 4


@dataclass(frozen=True)
class Pinned:
    """A target with its checked addresses, in the order of the resolver."""

    target: Target
    addresses: tuple[str, ...]

    @property
    def address(self) -> str:
        """The address that is tried first."""
        return self.addresses[0]


def system_resolver(host: str, port: int) -> list[str]:
    """Resolve a name with the resolver of the host."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def pin(target: Target, policy: FetchPolicy, resolver: Resolver = system_resolver) -> Pinned:
    """Resolve a target and check every address. One refused address refuses all (``FetchRefused``, ``FetchError``)."""
    if target.address is not None:
        answers = [str(target.address)]
    else:
        try:
            answers = resolver(target.host, target.port)
        except (OSError, UnicodeError) as error:
            raise _unresolved(target, str(error)) from None
    if not answers:
        raise _unresolved(target, "the resolver knows no address for it")
    for answer in answers:
        try:
            # A scoped address (fe80::1%eth0) is link-local: checked without its scope, it is refused.
            address = ip_address(answer.partition("%")[0])
        except ValueError:
            raise _unresolved(target, f"the resolver answered {answer!r}, which is no address") from None
        violation = policy.judge_address(target, address, own=is_own(address))
        if violation is not None:
            raise FetchRefused(violation)
    return Pinned(target, tuple(answers[:MAX_TRIED]))


def is_own(address: IPAddress) -> bool:
    """Whether an address is one of this machine, so that the kernel would send from it. Nothing is sent."""
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as one:
        one.connect((str(address), 9))
        return ip_address(one.getsockname()[0].partition("%")[0]) == address
    return False


def lookup_threads() -> ThreadPoolExecutor:
    """Return a thread pool for the lookups of one sandbox; its threads start on demand."""
    return ThreadPoolExecutor(LOOKUPS, thread_name_prefix="sandbox-kernel-dns")


async def pin_in_thread(target: Target, policy: FetchPolicy, resolver: Resolver, executor: Executor) -> Pinned:
    """Run ``pin`` in a thread, within the connect timeout of the policy."""
    if target.address is not None:
        return pin(target, policy, resolver)
    call = asyncio.get_running_loop().run_in_executor(executor, pin, target, policy, resolver)
    try:
        async with asyncio.timeout(policy.connect_timeout_s):
            return await call
    except TimeoutError:
        raise _unresolved(target, f"no answer within {policy.connect_timeout_s:g} s") from None


def verifying_context(ca_file: str | None = None) -> ssl.SSLContext:
    """Return a TLS context that verifies certificate and name by the roots of the system, certifi and ``ca_file``."""
    return _context(ssl.get_default_verify_paths(), certifi.where(), ca_file)


@cache
def _context(_of_system: ssl.DefaultVerifyPaths, roots: str, ca_file: str | None) -> ssl.SSLContext:
    # Once: it takes a tenth of a second, in the thread of all proxies.
    context = ssl.create_default_context()
    context.load_verify_locations(roots)
    if ca_file is not None:
        context.load_verify_locations(ca_file)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


async def connect(
    pinned: Pinned, timeout_s: float, tls: ssl.SSLContext | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the first checked address that answers; ``FetchError`` when none does. TLS uses the host's name."""
    name = pinned.target.host if tls is not None else None
    endpoint = pinned.target.endpoint
    problem = FetchError(f"there is no address for {endpoint}", rule="connection_failed")
    for address in pinned.addresses:
        try:
            async with asyncio.timeout(timeout_s / len(pinned.addresses)):
                return await asyncio.open_connection(
                    address, pinned.target.port, limit=64 << 10, ssl=tls, server_hostname=name
                )
        except TimeoutError:
            problem = FetchError(f"no connection to {endpoint} in time; is the host up?", rule="connection_timeout")
        except OSError as error:
            problem = FetchError(f"could not connect to {endpoint} ({address}): {error}", rule="connection_failed")
    raise problem


def _unresolved(target: Target, why: str) -> FetchError:
    return FetchError(
        f"the name {target.host} could not be resolved: {why}; check its spelling and the host's DNS",
        rule="dns_resolution_failed",
    )
