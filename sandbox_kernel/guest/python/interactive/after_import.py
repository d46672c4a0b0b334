"""Calls a function when a module has been imported, so that a library is set up only in sessions that use it."""

from __future__ import annotations

import sys
import traceback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable, Mapping

    Hook = Callable[[Any], None]


class AfterImport:
    """A finder that finds nothing itself: it adds the call of a hook to the loader that another finder returns."""

    def __init__(self, hooks: Mapping[str, Hook]) -> None:
        self._hooks = hooks

    def install(self) -> None:
        """Take part in all imports from now on."""
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """See ``importlib.abc.MetaPathFinder``."""
        if name not in self._hooks:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = None if finder is self or find is None else find(name, path, target)
            if spec is not None:
                self._add(name, spec)
                return spec
        return None

    def _add(self, name: str, spec: Any) -> None:
        loader = spec.loader
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return

        def exec_module(module: ModuleType) -> None:
            execute(module)
            try:
                self._hooks[name](module)
            except Exception:  # the library works without us, only less well
                traceback.print_exc()

        try:
            loader.exec_module = exec_module
        except AttributeError:
            return
