"""What a failed cell of a wrapped kernel lacked: a line on the network, or on a file beside the notebook."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping

from sandbox_kernel.model import notes
from sandbox_kernel.workspace.hidden import is_hidden
from sandbox_kernel.workspace.tree.paths import display_name

#: Counters of packets without a route, and of those to a closed port of the jail, such as that of DNS.
_REFUSED = frozenset(("OutNoRoutes", "NoPorts", "Ip6OutNoRoutes", "Udp6NoPorts"))
#: How much of the end of what a cell said is searched, and for how many names at most.
_SEARCHED, _MOST_NAMES = 4000, 200
_NAME = re.compile(r"[\w./~+@-]{1,200}")


def refused_packets(pid: int) -> int:
    """Return how often the network of this process had no way out; 0 where the kernel does not say."""
    try:
        with open(f"/proc/{pid}/net/snmp") as file:
            lines = [line.split() for line in file]
        with open(f"/proc/{pid}/net/snmp6") as file:
            pairs = [(name, value) for name, value in map(str.split, file)]
        for names, values in zip(lines[::2], lines[1::2], strict=False):
            pairs += zip(names, values, strict=False)
        return sum(int(value) for name, value in pairs if name in _REFUSED)
    except (OSError, ValueError):
        return 0


class Lacks:
    """Hears the cells of one kernel. ``refused`` counts packets, or is None; ``folder`` is the notebook's, or empty."""

    def __init__(self, refused: Callable[[], int] | None, folder: str, wraps: str = "") -> None:
        self._refused, self._folder, self._line = refused, folder, f"sandbox-kernel wrap {wraps or 'NAME'}"
        self._before = 0 if refused is None else refused()
        self._said, self._failed, self._told = "", False, False

    def hear(self, kind: str, content: Mapping[str, object]) -> None:
        """Take in a cleaned message of the running cell."""
        self._failed |= kind == "error" or content.get("status") == "error"
        trace = content.get("traceback")
        parts = [content.get("evalue"), content.get("text") if content.get("name") == "stderr" else ""]
        parts += trace[-50:] if isinstance(trace, list) else []
        heard = [self._said, *(part[-_SEARCHED:] for part in parts if isinstance(part, str))]
        self._said = "\n".join(heard)[-_SEARCHED:]

    def take(self, *, is_over: bool) -> Iterator[str]:
        """The cell is over, or its error is about to be shown: yield what to say of it, once."""
        before, self._before = self._before, 0 if self._refused is None else self._refused()
        said, failed = self._said, self._failed and not self._told
        self._said, self._failed, self._told = "", False, not is_over
        if not failed:
            return
        if self._before > before:
            yield notes.no_network(line=f"{self._line} ")
        if name := next(filter(self._is_beside, _NAME.findall(said)[-_MOST_NAMES:]), ""):
            yield (
                f"{display_name(name)} is beside the notebook, and this kernel sees none of your files; let it work on "
                f"a copy of the folder with: {self._line} --here"
            )

    def _is_beside(self, name: str) -> bool:
        path = os.path.relpath(name, self._folder) if self._folder and name.startswith("/") else os.path.normpath(name)
        beside = bool(self._folder) and "." in path[1:] and path.split("/")[0] not in ("..", "~")
        return beside and os.path.isfile(os.path.join(self._folder, path)) and not is_hidden(path)
