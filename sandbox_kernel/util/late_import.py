"""Imports a module when something of it is first used. Called before anything else imports it, for a quick start."""

from __future__ import annotations

import os
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


# Keeps modules beside a notebook out of our own processes, which are outside the jail.


def leave_present_folder() -> None:
    """Stop importing from the present folder. Called before anything else is imported.

    A kernel is started in the folder of its notebook, where anybody may have put a ``secrets.py``. ``python -m`` puts
    that folder first unless ``-P`` is given, and an empty part of ``PYTHONPATH`` means it too.
    """
    try:
        here = os.path.realpath(os.getcwd())
    except OSError:  # the folder is gone: nothing can be imported from it
        here = ""
    sys.path[:] = [path for path in sys.path if path and os.path.realpath(path) != here]
