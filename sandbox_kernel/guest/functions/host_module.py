"""The module ``host`` of Python programs: ``from host import search``.

``install`` costs next to nothing: what calls need is imported at the first one. Standard library only, Python 3.8 or
later.
"""

from __future__ import annotations

import sys
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List


class HostModule(ModuleType):
    """Has an attribute for each function of the host, and ``HostError``."""

    def __init__(self, hatch: int, listing: List[List[str]]) -> None:
        names = "\n".join(f"  {name}{signature}" for name, signature, _ in listing)
        super().__init__("host", f"Functions of the host:\n{names}")
        self.__dict__.update(__all__=["HostError", *(name for name, _, _ in listing)], __path__=[])
        self._hatch = hatch
        self._listing = {name: (signature, doc) for name, signature, doc in listing}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        from . import caller, calling

        if name == "HostError":
            found: Any = calling.HostError
        elif name == "_caller":
            found = caller.Caller(self._hatch)
        elif name == "aio":
            found = calling.Awaitable(self)
        elif name in self._listing:
            found = calling.function_of(self._caller, name, *self._listing[name])
        else:
            known = ", ".join(self._listing)
            raise AttributeError(f"the host has no function {name!r}; there are: {known}")
        self.__dict__[name] = found
        return found

    def __dir__(self) -> List[str]:
        return sorted(self.__dict__["__all__"])


def install(hatch: int, listing: List[List[str]]) -> None:
    """Make ``import host`` work in this interpreter."""
    sys.modules["host"] = HostModule(hatch, listing)
