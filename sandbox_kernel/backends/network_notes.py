"""The notes of a result on the network: it was open, the program had none, or the program went past the proxy.

The last two are hints and never verdicts: they come from what the program wrote to stderr. Without any rule there is no
proxy that knows what the program asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from sandbox_kernel.model import Note, NoteKind, notes
from sandbox_kernel.model.notes import has_note
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


OPEN = notes.network_open()
BESIDE = notes.network_beside_proxy()


def network_notes(policy: SandboxPolicy, stderr: str, known: Iterable[Note]) -> tuple[Note, ...]:
    """The notes on the network of a run or a cell behind walls.

    Args:
        policy: what the run may reach.
        stderr: what the program wrote; its end may hold a complaint about the network.
        known: the other notes of the run. A program that asked the proxy for a host that cannot be reached used the
            proxy, so it needs no hint to use it.

    """
    if not policy.network and not policy.network_rules:
        return hint(stderr)
    text = stderr[-_LOOKED_AT:]
    beside = (BESIDE,) if _SIGNS.search(text) is not None and not has_note(known, NoteKind.UNREACHED) else ()
    return (OPEN, *beside) if policy.network else beside


def hint(stderr: str) -> tuple[Note, ...]:
    """For a program without network that complained of a host; nothing for any other."""
    text = stderr[-_LOOKED_AT:]
    if _SIGNS.search(text) is None:
        return ()
    found = _HOST.search(text)
    domain = found.group(1).lower() if found is not None else "DOMAIN"
    return (notes.no_network(domain),)
