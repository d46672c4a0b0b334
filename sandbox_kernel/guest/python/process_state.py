"""What of a session's process is saved beside its variables, and what is only named.

Saved: the working directory, places of modules, the environment, and the state of random numbers. All else that cells
have set outside of their variables lives in the process alone: settings of libraries, patched functions, handlers. It
is found in the text of the cells and named, so that nobody misses it in silence.
"""

from __future__ import annotations

import ast
import contextlib
import os
import sys
import time
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Collection, Dict, Iterator, List

#: How a session begins; ``note_beginning`` has the rest.
_PATH = tuple(sys.path)
_ENVIRONMENT = dict(os.environ)
_TEMPORARY = os.environ.get("TMPDIR", "/tmp")
_beginning_files: List[str] = []
#: Places whose files go with the session.
_OF_THIS_SESSION = ("/tmp/", "/dev/", "/proc/", "/run/")
#: Where the interpreter and its packages are: the same in every session, also in an environment below /tmp.
_INSTALLED = tuple(os.path.realpath(place) + "/" for place in (sys.prefix, sys.base_prefix, *_PATH) if place)
_PROXIES = ("_proxy", "_PROXY")
_MAIN = "__main__"
_OURS = __name__.partition(".")[0]


def note_beginning() -> None:
    """Note the process as it is before the first cell."""
    _ENVIRONMENT.clear()
    _ENVIRONMENT.update(os.environ)
    _beginning_files[:] = _temporary_files()


def _temporary_files() -> List[str]:
    """Return what is in the folder of temporary files, without what libraries put there for themselves."""
    try:
        return sorted(name for name in os.listdir(_TEMPORARY) if not name.startswith((".", "matplotlib", "pymp-")))
    except OSError:
        return []


def lasts(place: str, folder: str) -> bool:
    """Whether another session has a path too: files of the work folder, ``folder``, are saved, others in /tmp not."""
    real = os.path.realpath(place) + "/"
    return real.startswith((os.path.realpath(folder) + "/", *_INSTALLED)) or not real.startswith(_OF_THIS_SESSION)


def can_import(module: str, folder: str) -> bool:
    """Whether another session can import a module, which was not made by hand or in a file that goes."""
    top = module.partition(".")[0]
    if top == _OURS:
        return True
    spec = getattr(sys.modules.get(top), "__spec__", None)
    origin = getattr(spec, "origin", None)
    if not isinstance(origin, str) or not os.path.isabs(origin):
        return spec is not None  # built in, or a folder without a file
    return os.path.exists(origin) and lasts(origin, folder)


def surroundings(folder: str, rights: Collection[str]) -> Dict[str, Any]:
    """Return what a file says of the process, as JSON can hold it, without the variables ``rights``."""
    changed = {
        name: os.environ.get(name)
        for name in {*os.environ, *_ENVIRONMENT}
        if os.environ.get(name) != _ENVIRONMENT.get(name) and name not in rights and not name.endswith(_PROXIES)
    }
    own = next((number for number, place in enumerate(sys.path) if place and place in _PATH), len(sys.path))
    added = [(number < own, place) for number, place in enumerate(sys.path) if place not in _PATH]
    places = [(first, place) for first, place in added if isinstance(place, str) and lasts(place, folder)]
    try:
        directory = os.getcwd()
        below = os.path.relpath(directory, folder)
    except (OSError, ValueError):
        directory = below = "."
    # As seen from the work folder if it is below that; empty for the work folder.
    place = "" if below == "." else directory if below.split("/")[0] == ".." else below
    return {"environment": changed, "places": places, "directory": place}


def set_surroundings(saved: Dict[str, Any], lost: Dict[str, str]) -> None:
    """Set environment, places of modules and working directory; one that is not there is noted in ``lost``."""
    for name, value in saved["environment"].items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    time.tzset()
    new = [(first, place) for first, place in saved["places"] if place not in sys.path]
    sys.path[:0] = [place for first, place in new if first]
    sys.path += [place for first, place in new if not first]
    if saved["directory"]:
        try:
            os.chdir(saved["directory"])
        except (OSError, ValueError):
            lost["os.getcwd"] = f"{saved['directory']} is not there; the working directory is the work folder"


#: The functions of modules that read and set the state of their random numbers.
_RANDOM = {
    "random": ("getstate", "setstate"),
    "numpy.random": ("get_state", "set_state"),
    "torch": ("get_rng_state", "set_rng_state"),
}


def random_state() -> Dict[str, Any]:
    """Return the state of random numbers by module. Read before a fork, which begins a new row of numbers."""
    found = {}
    for name, (read, _) in _RANDOM.items():
        if name in sys.modules:
            with contextlib.suppress(Exception):  # a cell has replaced the function, which is named then
                found[name] = getattr(sys.modules[name], read)()
    return found


def set_random_state(saved: Dict[str, Any], lost: Dict[str, str]) -> None:
    """Set the state of random numbers; notes in ``lost`` what cannot be."""
    for name, state in saved.items():
        try:
            module: Any = sys.modules.get(name) or __import__(name, fromlist=[""])
            getattr(module, _RANDOM[name][1])(state)
        except Exception as error:
            lost[name] = f"its random numbers could not be set: {type(error).__name__}: {str(error)[:200]}"


#: How many of the last cells are read.
_MOST_CELLS = 2000
_ONLY_THERE = "what cells set there is only in the session that was saved; set it again"
#: Functions that change a library or the process; others are found when they are assigned to.
_SETTERS = frozenset(
    """
    atexit.register codecs.register codecs.register_error copyreg.pickle csv.register_dialect decimal.setcontext
    gc.disable gc.freeze gc.set_threshold locale.setlocale logging.basicConfig logging.captureWarnings logging.disable
    logging.config.dictConfig mimetypes.add_type os.register_at_fork os.umask resource.setrlimit signal.signal
    socket.setdefaulttimeout sys.addaudithook sys.setprofile sys.setrecursionlimit sys.settrace
    sys.set_int_max_str_digits warnings.filterwarnings warnings.simplefilter weakref.finalize
    matplotlib.use matplotlib.rc matplotlib.style.use matplotlib.pyplot.style numpy.seterr numpy.set_printoptions
    pandas.set_option pandas.reset_option pandas.register_dataframe_accessor pandas.register_series_accessor
    polars.Config seaborn.set_theme sklearn.set_config torch.set_default_device torch.set_default_dtype
    torch.set_grad_enabled torch.set_num_threads
    """.split()  # noqa: SIM905 - a list would be forty lines
)
#: Magics that change the shell.
_MAGICS = ("alias", "autoreload", "config", "load_ext", "pprint", "precision", "xmode")
#: What of the shell itself runs something and changes nothing.
_RUNS = ("run_line_magic", "run_cell_magic", "system", "getoutput", "run_cell", "user_ns")
#: Attributes of modules that are saved.
_SAVED = ("os.environ", "sys.path")


def only_there(cells: List[str]) -> Dict[str, str]:
    """Return what cells changed outside of their variables, each with the reason, without code of the program."""
    space, found = vars(sys.modules[_MAIN]), {}
    for text in cells[-_MOST_CELLS:]:
        try:
            parts = ast.walk(ast.parse(text))
        except (SyntaxError, ValueError, RecursionError):
            continue
        found.update({name: _ONLY_THERE for part in parts for name in _changed_by(part, space) if name not in _SAVED})
    left = [repr(name)[:60] for name in _temporary_files() if name not in _beginning_files]
    if left:
        more = f" and {len(left) - 5} more" if len(left) > 5 else ""
        found["tempfile.gettempdir"] = f"files in {_TEMPORARY} are not saved: {', '.join(left[:5])}{more}"
    return found


def _changed_by(part: Any, space: Dict[str, Any]) -> Iterator[str]:
    """Find ``library.name = …``, ``library.table[…] = …``, ``setattr``, a setter, and what the shell was given."""
    if isinstance(part, (ast.Attribute, ast.Subscript)) and isinstance(part.ctx, (ast.Store, ast.Del)):
        yield from _dotted(part.value if isinstance(part, ast.Subscript) else part, space)
    elif isinstance(part, (ast.Attribute, ast.Name)):
        function: Any = _value_of(part, space)
        if callable(function) and type(function) is not types.ModuleType:
            names = {*_dotted(part, space)}
            if type(function) in (types.FunctionType, types.BuiltinFunctionType, type):
                # Some are made in C, in a module of the same name with an underscore.
                names.add(f"{str(function.__module__).lstrip('_')}.{function.__qualname__}")
            yield from names & _SETTERS
        shell = getattr(getattr(getattr(part, "value", None), "func", None), "id", "")
        if isinstance(part, ast.Attribute) and shell == "get_ipython" and part.attr not in _RUNS:
            yield f"IPython.{part.attr}"
    elif isinstance(part, ast.Call):
        given = [getattr(each, "value", None) for each in part.args]
        if getattr(part.func, "id", "") == "setattr" and len(given) == 3 and isinstance(given[1], str):
            yield from _dotted(ast.Attribute(part.args[0], given[1], ast.Store()), space)
        if getattr(part.func, "attr", "") == "run_line_magic" and given[:1] and given[0] in _MAGICS:
            yield f"IPython.{given[0]}"


def _dotted(node: Any, space: Dict[str, Any]) -> Iterator[str]:
    """Return the name of an attribute of a module or class of a library."""
    holder: Any = _value_of(node.value, space) if isinstance(node, ast.Attribute) else None
    if issubclass(type(holder), types.ModuleType) and holder.__name__ != _MAIN:
        yield f"{holder.__name__}.{node.attr}"
    elif issubclass(type(holder), type) and type.__dict__["__module__"].__get__(holder) != _MAIN:
        yield f"{holder.__module__}.{holder.__qualname__}.{node.attr}"


def _value_of(node: Any, space: Dict[str, Any]) -> Any:
    """Return what an expression of names and dots means, through modules and classes; None for everything else."""
    if isinstance(node, ast.Name):
        return space.get(node.id)
    if isinstance(node, ast.Attribute):
        holder = _value_of(node.value, space)
        return vars(holder).get(node.attr) if issubclass(type(holder), (types.ModuleType, type)) else None
    return None
