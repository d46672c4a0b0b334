"""Resolve a name once, judge every answer, and hand out the addresses that were judged.

Whoever connects uses the pinned addresses and asks no resolver again, so a name that changes its mind between check and
use changes nothing. Only names that the policy allowed come here: a denied name never leaves as a DNS question.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from ipaddress import ip_address

from sandbox_kernel.errors import FetchError
from sandbox_kernel.net.rules.fetch_policy import FetchPolicy
from sandbox_kernel.net.rules.refusal import FetchRefused
from sandbox_kernel.net.rules.targets import Target

#: Host name and port in, numeric addresses out; may block, and may raise OSError.
Resolver = Callable[[str, int], list[str]]
#: All answers are judged; no more than this many are tried.
MAX_TRIED = 6
#: Lookups at once for one sandbox; they block threads, and one sandbox must not take another's.
LOOKUPS = 4


@dataclass(frozen=True)
class Pinned:
    """A target with the addresses that were checked for it, in the resolver's order."""

    target: Target
    addresses: tuple[str, ...]

    @property
    def address(self) -> str:
        """The address that is tried first."""
        return self.addresses[0]


def system_resolver(host: str, port: int) -> list[str]:
    """The host's own resolver."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def pin(target: Target, policy: FetchPolicy, resolver: Resolver = system_resolver) -> Pinned:
    """Resolve and judge; one non-public answer among many refuses them all (``FetchRefused``, ``FetchError``)."""
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
            # A scoped answer (fe80::1%eth0) is link-local: judged without its scope, it is refused.
            address = ip_address(answer.partition("%")[0])
        except ValueError:
            raise _unresolved(target, f"the resolver answered {answer!r}, which is no address") from None
        violation = policy.judge_address(target, address)
        if violation is not None:
            raise FetchRefused(violation)
    return Pinned(target, tuple(answers[:MAX_TRIED]))


def lookup_threads() -> ThreadPoolExecutor:
    """The threads in which the names of one sandbox are resolved; they start when they are needed."""
    return ThreadPoolExecutor(LOOKUPS, thread_name_prefix="sandbox-kernel-dns")


async def pin_in_thread(target: Target, policy: FetchPolicy, resolver: Resolver, executor: Executor) -> Pinned:
    """``pin`` off the event loop, within the policy's connect time."""
    if target.address is not None:
        return pin(target, policy, resolver)
    call = asyncio.get_running_loop().run_in_executor(executor, pin, target, policy, resolver)
    try:
        async with asyncio.timeout(policy.connect_timeout_s):
            return await call
    except TimeoutError:
        raise _unresolved(target, f"no answer within {policy.connect_timeout_s:g} s") from None


def _unresolved(target: Target, why: str) -> FetchError:
    return FetchError(
        f"the name {target.host} could not be resolved: {why}; check its spelling and the host's DNS",
        rule="dns_resolution_failed",
    )
