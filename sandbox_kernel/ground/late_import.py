"""Lets a module be imported when something of it is first used, for the start of our own programs.

Called by the command line and the kernel, before anything else imports that module. A package that is imported late
still has its submodules: they are found without running the package's own code.
"""

from __future__ import annotations

import sys
import threading
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

_lock = threading.Lock()
#: What some functions of the standard library look for in every module that is there.
_LOOKED_FOR = ("__file__", "__path__")


class _Later(ModuleType):
    """Takes the place of a module until one of its names is used. Thread-safe: the import system's own locks hold."""

    def __getattr__(self, name: str) -> object:
        own = self.__name__
        if name in _LOOKED_FOR:
            raise AttributeError(f"module {own!r} has no attribute {name!r}")
        with _lock:
            if sys.modules.get(own) is self:
                del sys.modules[own]
        real = import_module(own)
        for known, part in vars(self).items():
            # A submodule that was imported before is not set again.
            if isinstance(part, ModuleType) and not hasattr(real, known):
                setattr(real, known, part)
        return getattr(real, name)


def import_late(name: str) -> None:
    """Put off the import of a module until one of its names is used; does nothing if it was imported already."""
    if name in sys.modules:
        return
    spec = find_spec(name)
    if spec is not None:
        module = _Later(name)
        if spec.submodule_search_locations is not None:
            module.__path__ = list(spec.submodule_search_locations)
        sys.modules[name] = module
