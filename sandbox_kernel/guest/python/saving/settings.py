"""Settings of the process and of libraries that no variable holds: stored with the variables, and set again by a load.

A setting is known by the name that a user would look for it (``numpy.seterr``). It is read only if its module is
imported, and stored only if cells have changed it, where that is known. Those of ``EARLY`` are set before the variables
are made, because modules that are imported for them may ask for it.
"""

from __future__ import annotations

import os
import sys
import time

from . import registrations
from .registrations import UNCHANGED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Set, Tuple

    Reader = Callable[[], Any]
    Writer = Callable[[Any], None]

_PROXIES = ("_proxy", "_PROXY")


class Rights:
    """Variables of the environment that are rights of the session, which a file does not give to another one."""

    names: Tuple[str, ...] = ()


def _read_environment() -> Any:
    now = dict(os.environ)
    changed = {name: now.get(name) for name in {*now, *_ENVIRONMENT} if now.get(name) != _ENVIRONMENT.get(name)}
    own = {name: value for name, value in changed.items() if name not in Rights.names and not name.endswith(_PROXIES)}
    return own or UNCHANGED


def _write_environment(changed: Dict[str, str | None]) -> None:
    for name, value in changed.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    if "TZ" in changed:
        time.tzset()


def _read_context() -> Any:
    return sys.modules["decimal"].getcontext().copy()


def _write_context(context: Any) -> None:
    sys.modules["decimal"].setcontext(context)


def _read_umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _write_umask(mask: int) -> None:
    os.umask(mask)


def _of(module: str, read: str, write: str, unpack: str = "") -> Tuple[str, Reader, Writer]:
    """Return a setting that a module reads and writes by functions of its own."""

    def found(path: str) -> Any:
        one: Any = sys.modules[module]
        for name in path.split("."):
            one = getattr(one, name)
        return one

    def set_again(value: Any) -> None:
        if unpack == "*":
            found(write)(*value)
        elif unpack == "**":
            found(write)(**value)
        else:
            found(write)(value)

    return module, lambda: found(read)(), set_again


def _read_warnings() -> Any:
    return list(sys.modules["warnings"].filters)


def _write_warnings(filters: List[Any]) -> None:
    warnings: Any = sys.modules["warnings"]
    warnings.filters[:] = filters
    warnings._filters_mutated() if hasattr(warnings, "_filters_mutated") else warnings._filters_mutated_lock_held()


def _read_locale() -> Any:
    locale: Any = sys.modules["locale"]
    return locale.setlocale(locale.LC_ALL)


def _write_locale(value: str) -> None:
    locale: Any = sys.modules["locale"]
    locale.setlocale(locale.LC_ALL, value)


def _write_collecting(value: Tuple[bool, Tuple[int, ...]]) -> None:
    import gc

    gc.set_threshold(*value[1])
    gc.enable() if value[0] else gc.disable()


def _read_collecting() -> Any:
    import gc

    return gc.isenabled(), gc.get_threshold()


def _read_dialects() -> Any:
    csv: Any = sys.modules["csv"]
    names = ("delimiter", "doublequote", "escapechar", "lineterminator", "quotechar", "quoting", "skipinitialspace")
    own = [name for name in csv.list_dialects() if name not in ("excel", "excel-tab", "unix")]
    found = {name: {each: getattr(csv.get_dialect(name), each) for each in names} for name in own}
    return (found, csv.field_size_limit()) if found or csv.field_size_limit() != 131072 else UNCHANGED


def _write_dialects(value: Tuple[Dict[str, Any], int]) -> None:
    csv: Any = sys.modules["csv"]
    for name, fields in value[0].items():
        csv.register_dialect(name, **fields)
    csv.field_size_limit(value[1])


def _read_pandas() -> Any:
    config: Any = sys.modules["pandas._config.config"]
    found = {}
    for key, option in config._registered_options.items():
        if key not in config._deprecated_options:
            value = config.get_option(key)
            if value is not option.defval and value != option.defval:
                found[key] = value
    return found or UNCHANGED


def _write_pandas(options: Dict[str, Any]) -> None:
    pandas: Any = sys.modules["pandas"]
    for key, value in options.items():
        pandas.set_option(key, value)


def _read_figures() -> Any:
    matplotlib: Any = sys.modules["matplotlib"]
    # To ask for the backend would choose one.
    now, began = dict.copy(matplotlib.rcParams), dict.copy(matplotlib.rcParamsOrig)
    found = {key: value for key, value in now.items() if key != "backend" and value != began.get(key)}
    return found or UNCHANGED


def _write_figures(changed: Dict[str, Any]) -> None:
    sys.modules["matplotlib"].rcParams.update(changed)


def _read_torch() -> Any:
    torch: Any = sys.modules["torch"]
    return torch.get_rng_state(), torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_num_threads()


def _write_torch(value: Any) -> None:
    torch: Any = sys.modules["torch"]
    torch.set_rng_state(value[0])
    torch.set_default_dtype(value[1])
    torch.set_grad_enabled(value[2])
    torch.set_num_threads(value[3])


def _read_shell() -> Any:
    shell: Any = sys.modules["IPython"].get_ipython()
    formats = shell.display_formatter.formatters["text/plain"]
    return formats.float_precision, formats.pprint, shell.InteractiveTB.mode, shell.ast_node_interactivity


def _write_shell(value: Any) -> None:
    shell: Any = sys.modules["IPython"].get_ipython()
    formats = shell.display_formatter.formatters["text/plain"]
    formats.float_precision, formats.pprint, mode, shell.ast_node_interactivity = value
    shell.InteractiveTB.set_mode(mode=mode)


#: Settings that are set before the variables are made: by name, the module, how it is read and how it is set.
EARLY: Dict[str, Tuple[str, Reader, Writer]] = {
    "os.environ": ("os", _read_environment, _write_environment),
    "os.umask": ("os", _read_umask, _write_umask),
    "sys.setrecursionlimit": _of("sys", "getrecursionlimit", "setrecursionlimit"),
    "sys.set_int_max_str_digits": _of("sys", "get_int_max_str_digits", "set_int_max_str_digits"),
    "sys.setswitchinterval": _of("sys", "getswitchinterval", "setswitchinterval"),
    "gc.set_threshold": ("gc", _read_collecting, _write_collecting),
}
#: Settings that are set when the variables have been made.
LATE: Dict[str, Tuple[str, Reader, Writer]] = {
    "locale.setlocale": ("locale", _read_locale, _write_locale),
    "warnings.filters": ("warnings", _read_warnings, _write_warnings),
    "socket.setdefaulttimeout": _of("socket", "getdefaulttimeout", "setdefaulttimeout"),
    "csv.register_dialect": ("csv", _read_dialects, _write_dialects),
    "decimal.setcontext": ("decimal", _read_context, _write_context),
    "numpy.seterr": _of("numpy", "geterr", "seterr", "**"),
    "numpy.set_printoptions": _of("numpy", "get_printoptions", "set_printoptions", "**"),
    "pandas.set_option": ("pandas", _read_pandas, _write_pandas),
    "matplotlib.rcParams": ("matplotlib", _read_figures, _write_figures),
    "sklearn.set_config": _of("sklearn", "get_config", "set_config", "**"),
    "signal.signal": ("signal", registrations.read_signals, registrations.write_signals),
    "logging.basicConfig": ("logging", registrations.read_logging, registrations.write_logging),
    "copyreg.pickle": ("copyreg", registrations.read_reducers, registrations.write_reducers),
    "resource.setrlimit": ("resource", registrations.read_limits, registrations.write_limits),
    "abc.ABCMeta.register": ("abc", registrations.read_virtual, registrations.write_virtual),
    "IPython.display": ("IPython", _read_shell, _write_shell),
    "random.setstate": _of("random", "getstate", "setstate"),
    "numpy.random.set_state": _of("numpy.random", "get_state", "set_state"),
    "torch.set_rng_state": ("torch", _read_torch, _write_torch),
}
ALL = {**EARLY, **LATE}
#: Settings that are stored always.
_ALWAYS = ("os.environ", "random.setstate", "numpy.random.set_state", "torch.set_rng_state")
_ENVIRONMENT = dict(os.environ)
#: Settings as a session begins; modules that are imported later are not in it.
_BEGAN: Dict[str, Any] = {}
#: Settings that a fork changes by itself, as they were before it.
_BEFORE_FORK: Dict[str, Any] = {}
_hooks: Dict[str, int] = {}
#: The folder of temporary files, which is no part of the work folder, and what is in it at the beginning.
_TEMPORARY = os.environ.get("TMPDIR", "/tmp")
_beginning_files: Set[str] = set()


def _temporary_files() -> List[str]:
    """Return what is in the folder of temporary files, without what libraries put there for themselves."""
    try:
        return sorted(name for name in os.listdir(_TEMPORARY) if not name.startswith((".", "matplotlib", "pymp-")))
    except OSError:
        return []


def note_beginning(signals: Any) -> None:
    """Note the settings of a session before its first cell; ``signals`` is the ``Signals`` of its worker."""
    registrations.note_signals(signals)
    _ENVIRONMENT.clear()
    _ENVIRONMENT.update(os.environ)
    _hooks.update(registrations.read_hooks())
    _beginning_files.update(_temporary_files())
    for name in ALL:
        if name not in _ALWAYS and name != "abc.ABCMeta.register":
            _BEGAN[name] = _read(name)


def note_before_fork() -> None:
    """Note the settings that are other ones in a fork that saves."""
    for name in ("random.setstate", "sys.setrecursionlimit", "signal.signal"):
        _BEFORE_FORK[name] = _read(name)


def _read(name: str) -> Any:
    module, read, _ = ALL[name]
    return read() if module in sys.modules else UNCHANGED


def changed(name: str) -> Any:
    """Return the value of a setting that cells have changed, or may have; ``UNCHANGED`` for others."""
    value = _BEFORE_FORK[name] if name in _BEFORE_FORK else _read(name)
    return UNCHANGED if name in _BEGAN and type(value) is type(_BEGAN[name]) and value == _BEGAN[name] else value


def lost_hooks() -> Dict[str, str]:
    """Return what cells gave to the shell, or to the interpreter, and no file can hold; each with the reason."""
    why = "what cells registered there is only in the session that was saved"
    found = {name: why for name, count in registrations.read_hooks().items() if count > _hooks[name]}
    left = [repr(name)[:60] for name in _temporary_files() if name not in _beginning_files]
    if left:
        more = f" and {len(left) - 5} more" if len(left) > 5 else ""
        found["tempfile.gettempdir"] = f"files in {_TEMPORARY} are not saved: {', '.join(left[:5])}{more}"
    for name, function in (("sys.settrace", sys.gettrace), ("sys.setprofile", sys.getprofile)):
        if function() is not None:
            found[name] = why
    return found


def write(name: str, value: Any) -> str:
    """Set a setting again. Returns why that is not possible; empty when it was."""
    module, _, set_again = ALL[name]
    try:
        __import__(module)
        set_again(value)
    except Exception as error:
        return f"it could not be set again: {type(error).__name__}: {str(error)[:200]}"
    return ""
