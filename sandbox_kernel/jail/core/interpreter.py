"""Which folders an interpreter needs to run: its real executable, its prefixes, its libraries and its packages."""

from __future__ import annotations

import functools
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass

from sandbox_kernel.errors import BackendUnavailable, InvalidRequest
from sandbox_kernel.limits import quoted
from sandbox_kernel.policy import Grant

#: Below these everything is visible in every jail anyway.
SYSTEM_ROOTS = ("/usr", "/bin", "/sbin", "/lib", "/lib64")

_VERSION = re.compile(r"\d+(\.\d+){1,2}\Z")

_ASK = """
import json, sys, sysconfig
paths = [sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix, *sysconfig.get_paths().values()]
print(json.dumps({"executable": sys.executable, "version": list(sys.version_info[:3]), "paths": paths}))
"""


@dataclass(frozen=True)
class Interpreter:
    """A Python that can stand inside a jail."""

    executable: str
    version: tuple[int, ...]
    runtime: tuple[Grant, ...]


def is_system(path: str) -> bool:
    """Whether a path is part of the system that every jail shows."""
    return any(path == root or path.startswith(root + "/") for root in SYSTEM_ROOTS)


def outermost(paths: list[str]) -> list[str]:
    """The shortest list of existing paths that covers all of these, without the system's own.

    A folder that holds the user's home is never chosen: no interpreter is worth showing it.
    """
    home = os.path.realpath(os.path.expanduser("~"))
    chosen: list[str] = []
    for path in sorted({os.path.normpath(p) for p in paths}, key=lambda p: (p.count("/"), p)):
        covered = is_system(path) or any(path == c or path.startswith(c + "/") for c in chosen)
        if not covered and not (home + "/").startswith(path.rstrip("/") + "/") and os.path.exists(path):
            chosen.append(path)
    return chosen


def runtime_grants(paths: list[str]) -> tuple[Grant, ...]:
    """Read-only grants that show these paths at their own place and at their real place."""
    grants: dict[Grant, None] = {}
    for path in outermost([*paths, *(os.path.realpath(p) for p in paths)]):
        grants[Grant(os.path.realpath(path), path, False)] = None
    return tuple(grants)


def interpreter_name(given: object) -> str:
    """What a caller gave for an interpreter, as text; what cannot name one is refused."""
    name = os.fspath(given) if isinstance(given, os.PathLike) else given
    if not isinstance(name, str) or "\0" in name:
        raise InvalidRequest(
            f"python must be an interpreter, a virtual environment or a version, got {quoted(given)}; "
            "for example python='3.12' or python='/opt/venv'"
        )
    return name


@functools.lru_cache(maxsize=32)
def find_python(path: str) -> Interpreter:
    """Find and question an interpreter; ``python3`` and ``python`` mean the one that runs this program.

    A kernel started by its absolute path has no activated environment, so a look-up on PATH would give a Python
    without the user's packages. A folder is taken for a virtual environment, a version (``3.12``) for an interpreter
    of that version, any other name is looked up on PATH.
    """
    if path in ("python", "python3", ""):
        chosen: str | None = sys.executable
    elif os.path.isdir(path):
        chosen = os.path.join(path, "bin", "python")
    elif _VERSION.match(path):
        chosen = _find_version(path)
    else:
        chosen = shutil.which(path)
    if not chosen or not os.access(chosen, os.X_OK):
        raise BackendUnavailable(
            f"python interpreter {path!r} was not found; "
            f"give a version that is installed, or the path of an interpreter or of a virtual environment"
        )
    chosen = os.path.abspath(chosen)
    facts = _own_facts() if _is_ours(chosen) else _ask(chosen)
    if facts.version < (3, 8):
        raise BackendUnavailable(f"{chosen} is Python {'.'.join(map(str, facts.version))}; 3.8 or later is needed")
    executable = facts.executable or chosen
    return Interpreter(executable, facts.version, runtime_grants([*facts.paths, *_link_chain(executable)]))


@dataclass(frozen=True)
class _Facts:
    """What an interpreter says of itself. A shim (pyenv, asdf) names the real executable, which works inside."""

    executable: str
    version: tuple[int, ...]
    paths: list[str]


def _is_ours(path: str) -> bool:
    """Whether a path is what runs this program. A program that embeds Python may be named there and run no script."""
    return path == sys.executable and os.path.basename(path).startswith("python")


def _own_facts() -> _Facts:
    """What ``_ASK`` would answer here: a process less for the first run of every program."""
    paths = [sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix, *sysconfig.get_paths().values()]
    return _Facts(sys.executable, sys.version_info[:3], paths)


def _ask(path: str) -> _Facts:
    answer = subprocess.run(
        [path, "-I", "-c", _ASK], capture_output=True, text=True, timeout=30, check=False, stdin=subprocess.DEVNULL
    )
    try:
        facts = json.loads(answer.stdout)
        return _Facts(facts["executable"], tuple(facts["version"]), facts["paths"])
    except (ValueError, TypeError, KeyError):
        raise BackendUnavailable(
            f"{path} is not a working Python interpreter: {answer.stderr.strip()[-300:]}"
        ) from None


def _find_version(version: str) -> str | None:
    """An interpreter of this version: on PATH, or where pyenv and uv put theirs."""
    if version.count(".") < 2 and (found := shutil.which(f"python{version}")):
        return found
    homes = ("~/.pyenv/versions/{}", "~/.local/share/uv/python/cpython-{}-*")
    patterns = [home.format(f"{version}{end}") for home in homes for end in ("", ".*")]
    found_all = [path for pattern in patterns for path in glob.glob(f"{os.path.expanduser(pattern)}/bin/python3")]
    return max(found_all, key=lambda path: [int(n) for n in re.findall(r"\d+", path)], default=None)


def _link_chain(path: str) -> list[str]:
    """A path and every link on the way to its real file: a virtual environment's python is a link of links."""
    chain = [path]
    while os.path.islink(chain[-1]) and len(chain) < 20:
        chain.append(os.path.join(os.path.dirname(chain[-1]), os.readlink(chain[-1])))
    return [os.path.normpath(link) for link in chain]
