"""Finds a Python interpreter and the folders that it needs: executable, prefixes, libraries and packages."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig

from sandbox_kernel.errors import BackendUnavailable, InvalidRequest
from sandbox_kernel.limits import quoted
from sandbox_kernel.policy import Grant
from sandbox_kernel.policy.written_folders import host_program
from sandbox_kernel.util.values import dataclass

#: Every jail shows everything below these.
SYSTEM_ROOTS = ("/usr", "/bin", "/sbin", "/lib", "/lib64")

_VERSION = re.compile(r"\d+(\.\d+){1,2}\Z")

_ASK = """
import json, sys, sysconfig
paths = [sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix, *sysconfig.get_paths().values()]
print(json.dumps({"executable": sys.executable, "version": list(sys.version_info[:3]), "paths": paths}))
"""


@dataclass(frozen=True)
class Interpreter:
    """A Python that can run inside a jail."""

    executable: str
    version: tuple[int, ...]
    runtime: tuple[Grant, ...]


def is_system(path: str) -> bool:
    """Whether a path lies in the system folders that every jail shows."""
    return any(path == root or path.startswith(root + "/") for root in SYSTEM_ROOTS)


def outermost(paths: list[str]) -> list[str]:
    """Return the fewest existing paths that cover these, without system folders and what contains the user's home."""
    home = os.path.realpath(os.path.expanduser("~"))
    chosen: list[str] = []
    for path in sorted({os.path.normpath(p) for p in paths}, key=lambda p: (p.count("/"), p)):
        covered = is_system(path) or any(path == c or path.startswith(c + "/") for c in chosen)
        if not covered and not (home + "/").startswith(path.rstrip("/") + "/") and os.path.exists(path):
            chosen.append(path)
    return chosen


def runtime_grants(paths: list[str]) -> tuple[Grant, ...]:
    """Return read-only grants that show these paths at the given path and at their real path."""
    grants: dict[Grant, None] = {}
    for path in outermost([*paths, *(os.path.realpath(p) for p in paths)]):
        grants[Grant(os.path.realpath(path), path, False)] = None
    return tuple(grants)


def interpreter_name(given: object) -> str:
    """Return the interpreter that a caller gave as text. Raises ``InvalidRequest`` for what cannot be one."""
    name = os.fspath(given) if isinstance(given, os.PathLike) else given
    if not isinstance(name, str) or "\0" in name:
        raise InvalidRequest(
            f"python must be an interpreter, a virtual environment or a version, got {quoted(given)}; "
            "for example python='3.12' or python='/opt/venv'"
        )
    return name


def answer_of(argv: list[str], env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program of the host that says something of itself, such as its version.

    In the root folder: in another one, rustup would obey a file that names a compiler.
    """
    return subprocess.run(
        argv, capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL, env=env, cwd="/"
    )


@functools.lru_cache(maxsize=32)
def find_python(path: str) -> Interpreter:
    """Find an interpreter and query it; ``python3`` and ``python`` mean the one that runs this process.

    A kernel that was started by its absolute path has no activated environment, so PATH would find a Python without
    the user's packages. A folder is a virtual environment, a version (``3.12``) is an interpreter of that
    version, any other name is looked up on PATH.
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
            f"python interpreter {path!r} was not found",
            "give a version that is installed, or the path of an interpreter or of a virtual environment",
        )
    chosen = os.path.abspath(chosen)
    # Of a shim (pyenv, asdf) this is the real executable.
    executable, version, paths = _own_facts() if _is_ours(chosen) else _ask(host_program(chosen))
    if version < (3, 8):
        raise BackendUnavailable(f"{chosen} is Python {'.'.join(map(str, version))}", "3.8 or later is needed")
    executable = executable or chosen
    return Interpreter(executable, version, runtime_grants([*paths, *_link_chain(executable)]))


def _is_ours(path: str) -> bool:
    """Whether a path is the Python of this process. A program that embeds Python is not: it may not run scripts."""
    return path == sys.executable and os.path.basename(path).startswith("python")


def _own_facts() -> tuple[str, tuple[int, ...], list[str]]:
    """The same as ``_ask`` for the running interpreter, without starting a process."""
    paths = [sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix, *sysconfig.get_paths().values()]
    return sys.executable, sys.version_info[:3], paths


def _ask(path: str) -> tuple[str, tuple[int, ...], list[str]]:
    """Return what an interpreter says of itself: its executable, its version, the folders that it needs."""
    answer = answer_of([path, "-I", "-c", _ASK])
    try:
        facts = json.loads(answer.stdout)
        return facts["executable"], tuple(facts["version"]), facts["paths"]
    except (ValueError, TypeError, KeyError):
        raise BackendUnavailable(
            f"{path} is not a working Python interpreter: {answer.stderr.strip()[-300:]}",
            "install Python 3.8 or later",
        ) from None


def _find_version(version: str) -> str | None:
    """Return an interpreter of this version: from PATH, or from the folders of pyenv and uv."""
    if version.count(".") < 2 and (found := shutil.which(f"python{version}")):
        return found
    import glob  # the interpreter of this process is not looked for

    homes = ("~/.pyenv/versions/{}", "~/.local/share/uv/python/cpython-{}-*")
    patterns = [home.format(f"{version}{end}") for home in homes for end in ("", ".*")]
    found_all = [path for pattern in patterns for path in glob.glob(f"{os.path.expanduser(pattern)}/bin/python3")]
    return max(found_all, key=lambda path: [int(n) for n in re.findall(r"\d+", path)], default=None)


def _link_chain(path: str) -> list[str]:
    """Return a path and every link on the way to its real file. The python of a virtual environment is such a chain."""
    chain = [path]
    while os.path.islink(chain[-1]) and len(chain) < 20:
        chain.append(os.path.join(os.path.dirname(chain[-1]), os.readlink(chain[-1])))
    return [os.path.normpath(link) for link in chain]
