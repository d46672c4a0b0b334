"""What cells have registered with libraries: signal handlers, log handlers, reducers, virtual subclasses.

Each pair of functions reads it when a session is saved, and registers it again when it is loaded; ``settings.py`` has
the table.
"""

from __future__ import annotations

import sys
from abc import ABCMeta

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Tuple

#: What is read of a setting that is as it is in every new session.
UNCHANGED = object()
_MAIN = "__main__"


class Handlers:
    """The signals of the worker, and the handlers that the session began with."""

    signals: Any = None
    began: Dict[int, Any]


def note_signals(signals: Any) -> None:
    """Note the handlers of a session before its first cell; ``signals`` is the ``Signals`` of its worker."""
    Handlers.signals, Handlers.began = signals, signals.handlers()


def read_signals() -> Any:
    """Return the handlers that cells have set."""
    now = Handlers.signals.handlers()
    own = {number: handler for number, handler in now.items() if handler != Handlers.began.get(number)}
    return own or UNCHANGED


def write_signals(handlers: Dict[int, Any]) -> None:
    """Set handlers again."""
    Handlers.signals.set_handlers(handlers)


def read_reducers() -> Any:
    """Return the reducers that cells have registered for ``copy`` and ``pickle``."""
    table = sys.modules["copyreg"].dispatch_table
    return [(kind, how) for kind, how in table.items() if _MAIN in (kind.__module__, how.__module__)] or UNCHANGED


def write_reducers(pairs: List[Tuple[Any, Any]]) -> None:
    """Register reducers."""
    for kind, how in pairs:
        sys.modules["copyreg"].pickle(kind, how)


class Virtual:
    """Whether cells may have registered classes with abstract ones: to look at all classes takes long."""

    likely = False


def read_virtual() -> Any:
    """Return the classes of cells that were registered with abstract classes of libraries."""
    if not Virtual.likely:
        return UNCHANGED
    dump: Any = sys.modules["_abc"]._get_dump
    found, seen, todo = [], {object}, list(type.__subclasses__(object))
    while todo:
        kind = todo.pop()
        if kind in seen:
            continue
        seen.add(kind)
        todo += type.__subclasses__(kind)
        if isinstance(kind, ABCMeta) and kind.__module__ != _MAIN:
            own = [each() for each in dump(kind)[0]]
            found += [(kind, each) for each in own if getattr(each, "__module__", "") == _MAIN]
    return found or UNCHANGED


def write_virtual(pairs: List[Tuple[Any, Any]]) -> None:
    """Register classes with abstract ones."""
    Virtual.likely = True
    for kind, each in pairs:
        kind.register(each)


def read_logging() -> Any:
    """Return levels and handlers of loggers. A handler that is none of the two plain ones is stored as it is."""
    logging: Any = sys.modules["logging"]
    found = {}
    named = {name: one for name, one in logging.root.manager.loggerDict.items() if isinstance(one, logging.Logger)}
    for name, one in {"": logging.root, **named}.items():
        handlers = [_plain(each) for each in one.handlers if not isinstance(each, logging.NullHandler)]
        state = (one.level, one.propagate, one.disabled)
        if handlers or state != (logging.WARNING if one is logging.root else logging.NOTSET, True, False):
            found[name] = (state, handlers)
    return found or UNCHANGED


def _plain(handler: Any) -> Any:
    """Return a handler of a log as what it is made of: where it writes, its level, format and filters."""
    logging: Any = sys.modules["logging"]
    if type(handler) is logging.FileHandler:
        to: Any = ("file", handler.baseFilename, handler.encoding)
    elif type(handler) is logging.StreamHandler and handler.stream in (sys.stdout, sys.stderr):
        to = ("stream", "stdout" if handler.stream is sys.stdout else "stderr", None)
    else:
        return ("other", handler, None), 0, None, []
    return to, handler.level, handler.formatter, handler.filters


def write_logging(found: Dict[str, Any]) -> None:
    """Set levels of loggers again, and add the handlers that they have not."""
    import logging

    for name, (state, handlers) in found.items():
        one = logging.getLogger(name) if name else logging.root
        one.setLevel(state[0])
        one.propagate, one.disabled = state[1:]
        there = [_plain(each)[0][:2] for each in one.handlers]
        for to, level, form, filters in handlers:
            if to[:2] not in there:
                made = _made(to)
                if to[0] != "other":
                    made.setLevel(level)
                    made.setFormatter(form)
                    made.filters = list(filters)
                one.addHandler(made)


def _made(to: Any) -> Any:
    import logging

    kind, what, encoding = to
    if kind == "other":
        return what
    return logging.FileHandler(what, encoding=encoding) if kind == "file" else logging.StreamHandler(getattr(sys, what))


def read_limits() -> Any:
    """Return the limits of the process."""
    resource: Any = sys.modules["resource"]
    return {
        name: resource.getrlimit(getattr(resource, name)) for name in sorted(vars(resource)) if name[:7] == "RLIMIT_"
    }


def write_limits(limits: Dict[str, Tuple[int, int]]) -> None:
    """Lower limits of the process as cells had lowered them; none is raised."""
    import resource

    for name, wanted in limits.items():
        number = getattr(resource, name)
        soft, hard = (_lower(one, other) for one, other in zip(wanted, resource.getrlimit(number)))  # noqa: B905
        resource.setrlimit(number, (soft, hard))


def _lower(one: int, other: int) -> int:
    return max(one, other) if -1 in (one, other) else min(one, other)


def read_hooks() -> Dict[str, int]:
    """Return how many functions of cells the shell was given that a file cannot hold, by what they are for."""
    shell: Any = sys.modules["IPython"].get_ipython()
    given: Dict[str, List[Any]] = {
        "IPython.events": [each for callbacks in shell.events.callbacks.values() for each in callbacks],
        "IPython.display_formatter": [
            each for kind in shell.display_formatter.formatters.values() for each in kind.type_printers.values()
        ],
        "IPython.magics_manager": [each for kind in shell.magics_manager.magics.values() for each in kind.values()],
    }
    found = {name: sum(getattr(each, "__module__", "") == _MAIN for each in held) for name, held in given.items()}
    return {**found, "IPython.alias_manager": len(shell.alias_manager.aliases)}
