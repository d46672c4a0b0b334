"""The notes of a result on the network: it was open, the program had none, or the program went past the proxy.

The last two are hints and never verdicts: they come from what the program wrote, or says that it tried. Without any
rule there is no proxy that knows what the program asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from sandbox_kernel.ground.values import dataclass
from sandbox_kernel.model import Note, NoteKind, notes
from sandbox_kernel.model.notes import has_note
from sandbox_kernel.policy import SandboxPolicy

#: Only the end is looked at: programs complain when they give up.
_LOOKED_AT = 1 << 16
# Texts and not compiled: most runs complain of nothing, and ``re`` keeps those that were used.
_SIGNS = (
    r"Name or service not known|Temporary failure in name resolution|[Cc]ould not resolve host|no such host"
    r"|getaddrinfo (?:ENOTFOUND|EAI_AGAIN)|unable to resolve host|failed to lookup address|Network is unreachable"
)
_HOST = (
    r"(?i)(?:could not resolve host:|getaddrinfo (?:ENOTFOUND|EAI_AGAIN)|unable to resolve host address"
    r"|failed to resolve|Pool\(host=|lookup) ?[‘'\"]?([a-z0-9-]+(?:\.[a-z0-9-]+)+)\b"
)


#: Addresses in the source of a program: the best guess of what it wanted when it does not say.
_URL = r"(?i)\b(?:https?|wss?|ftp)://(?:[^\s/'\"@]*@)?([a-z0-9-]+(?:\.[a-z0-9-]+)+(?::[0-9]{1,5})?)"

OPEN = notes.network_open()
BESIDE = notes.network_beside_proxy()


@dataclass(frozen=True)
class NetworkSigns:
    """What may tell that a program wanted the network.

    Args:
        stderr: What the program wrote; its end may hold a complaint about the network.
        code: The source of the program, which may name the host.
        tried: Host names that the program looked up in vain, as its worker says; it may have caught the error.

    """

    stderr: str = ""
    code: str = ""
    tried: tuple[str, ...] = ()

    @property
    def _named(self) -> list[str]:
        """The names with a dot. Others are those of machines, which libraries look up for other reasons."""
        return [name for name in self.tried if "." in name.strip(".")]

    @property
    def complained(self) -> bool:
        """Whether the program met the walls around the network."""
        return bool(self._named) or re.search(_SIGNS, self.stderr[-_LOOKED_AT:]) is not None

    @property
    def domain(self) -> str:
        """The host that the program wanted most likely; empty when nothing names one."""
        if self._named:
            return self._named[0].lower()
        found = re.search(_HOST, self.stderr[-_LOOKED_AT:]) or re.search(_URL, self.code[:_LOOKED_AT])
        return found.group(1).lower() if found is not None else ""


def network_notes(
    policy: SandboxPolicy, signs: NetworkSigns, known: Iterable[Note], *, can_open: bool = True
) -> tuple[Note, ...]:
    """The notes on the network of a run or a cell behind walls.

    Args:
        policy: what the run may reach.
        signs: what may tell that the program wanted the network.
        known: the other notes of the run. A program that asked the proxy for a host that cannot be reached used the
            proxy, so it needs no hint to use it.
        can_open: whether these walls can open single hosts. A right that nobody can give is not offered.

    """
    if not policy.network and not policy.network_rules:
        said = notes.no_network(signs.domain) if can_open else notes.never_network(signs.domain)
        return (said,) if signs.complained else ()
    beside = (BESIDE,) if signs.complained and not has_note(known, NoteKind.UNREACHED) else ()
    return (OPEN, *beside) if policy.network else beside
