"""What a result says of the network: that all of it was open, how a program without any could get some, or that one
went past the proxy.

The last two are hints and never verdicts. Without any rule there is no proxy that could tell what was asked for; what
the program complained of is all there is.
"""

from __future__ import annotations

import re

from sandbox_kernel.policy import SandboxPolicy

#: Only the end is looked at: programs complain when they give up.
_LOOKED_AT = 1 << 16
_SIGNS = re.compile(
    r"Name or service not known|Temporary failure in name resolution|[Cc]ould not resolve host|no such host"
    r"|getaddrinfo (?:ENOTFOUND|EAI_AGAIN)|unable to resolve host|failed to lookup address|Network is unreachable"
)
_HOST = re.compile(
    r"(?:could not resolve host:|getaddrinfo (?:ENOTFOUND|EAI_AGAIN)|unable to resolve host address|failed to resolve"
    r"|Pool\(host=|lookup) ?[‘'\"]?([a-z0-9-]+(?:\.[a-z0-9-]+)+)\b",
    re.IGNORECASE,
)


OPEN = "the network was open: every public address, on ports 80 and 443"
BESIDE = (
    "the only way out is the proxy that http_proxy and https_proxy name; a program that looks up names or connects by "
    "itself reaches nothing"
)
#: The proxy's own words about a name that it could not resolve, which programs print too.
_OF_THE_PROXY = "could not be resolved"


def network_notes(policy: SandboxPolicy, stderr: str) -> tuple[str, ...]:
    """The notes of a run behind walls, by what its policy allows and what it complained of."""
    if not policy.network and not policy.network_rules:
        return hint(stderr)
    text = stderr[-_LOOKED_AT:]
    beside = (BESIDE,) if _SIGNS.search(text) is not None and _OF_THE_PROXY not in text else ()
    return (OPEN, *beside) if policy.network else beside


def hint(stderr: str) -> tuple[str, ...]:
    """For a program without network that complained of a host; nothing for any other."""
    text = stderr[-_LOOKED_AT:]
    if _SIGNS.search(text) is None:
        return ()
    found = _HOST.search(text)
    domain = found.group(1).lower() if found is not None else "DOMAIN"
    return (f"there is no network in this sandbox; to let it reach a host: --allow-net {domain}",)
