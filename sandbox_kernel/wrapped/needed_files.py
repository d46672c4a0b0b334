"""Finds which files of the host a kernel needs: its program, the folders of its language, its packages.

It starts nothing but interpreters that tell their paths. All is shown read-only, but no folder with the user's home.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import site
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sandbox_kernel.errors import BackendUnavailable
from sandbox_kernel.jail.interpreter import find_python, runtime_grants
from sandbox_kernel.policy import Grant
from sandbox_kernel.policy.written_folders import host_program

_PYTHON = re.compile(r"(?:python|pypy)[0-9.]*\Z")
#: How long an interpreter may take to say where its files are.
_PATIENCE_S = 30
#: Where Python imports from, and the user's own folder for packages if it is used.
_PACKAGES = (
    "import site, sys; used = site.ENABLE_USER_SITE and site.getusersitepackages() in sys.path; "
    "print(site.getuserbase() if used else '', *filter(None, sys.path), sep='\\n')"
)
_R_PATHS = "cat(R.home(), .libPaths(), sep = '\\n')"
_JULIA_DEPOT = "~/.julia"
#: A folder inside that Julia may write compiled packages to; the others are read-only.
_JULIA_OWN = "${XDG_CACHE_HOME}/julia"


@dataclass(frozen=True)
class NeededFiles:
    """A kernel's program, what must be readable for it, and variables that lead there: inside it has another home."""

    program: str
    grants: tuple[Grant, ...]
    env: Mapping[str, str] = field(default_factory=dict)


def needed_files(command: Sequence[str], env: Mapping[str, str], resource_dir: str) -> NeededFiles:
    """Return what a kernel needs. Raises ``BackendUnavailable`` when its program is not there."""
    found = shutil.which(command[0], path=env.get("PATH") or os.environ.get("PATH"))
    if found is None:
        raise BackendUnavailable(
            f"the kernel's program {command[0]!r} was not found; install it, or correct the argv of the kernelspec "
            "('jupyter kernelspec list' shows where it is)"
        )
    program = os.path.abspath(found)
    own, led = _of_program(program, env)
    paths = [*own, *_of_words(command[1:]), *_of_words(env.values())]
    if resource_dir and os.path.isdir(resource_dir):
        paths.append(os.path.abspath(resource_dir))
    return NeededFiles(program, runtime_grants([path for path in paths if os.path.exists(path)]), led)


def _of_program(program: str, env: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Return the paths that a program of this name reads, and the variables that lead it there."""
    name = os.path.basename(program)
    own = [program, *_prefix(program)]
    if _PYTHON.match(name):
        python = find_python(program)
        base, *packages = _packages(python.executable)
        led = {"PYTHONUSERBASE": base} if base and "PYTHONUSERBASE" not in env else {}
        return [*own, *(grant.target for grant in python.runtime), *packages], led
    if name in ("R", "Rscript"):
        # Conda's R is asked by the program beside it, not by one of the system.
        beside = os.path.join(os.path.dirname(program), "Rscript")
        asked = beside if os.path.exists(beside) else shutil.which("Rscript") or "Rscript"
        home, *libraries = _lines([asked, "-e", _R_PATHS], env) or [""]
        libraries = [path for path in libraries if path.startswith("/")]
        folders = [folder for folder in (home, *libraries) if folder.startswith("/")]
        linked = list(dict.fromkeys(target for folder in folders for target in _linked(f"{folder}/etc")))
        led = {"R_LIBS": ":".join(libraries)} if libraries and "R_LIBS" not in env else {}
        return [*own, *folders, *linked], led
    if name.startswith("julia"):
        # The empty part at the end stands for the depots of the installation.
        given = env.get("JULIA_DEPOT_PATH") or f"{os.path.expanduser(_JULIA_DEPOT)}:"
        return [*own, *_of_words([given])], {"JULIA_DEPOT_PATH": f"{_JULIA_OWN}:{given}"}
    interpreter = _interpreter(program)
    paths, led = _of_program(interpreter, env) if interpreter else ([], {})
    return [*own, *paths], led


def _prefix(program: str) -> list[str]:
    """Return the folders above a program's ``bin`` if they are an installation: its libraries are found from there."""
    found = []
    for path in dict.fromkeys((program, os.path.realpath(program))):
        folder = os.path.dirname(path)
        above = os.path.dirname(folder)
        is_installation = os.path.basename(folder) == "bin" and os.path.isdir(os.path.join(above, "lib"))
        found.append(above if is_installation else path)
    return found


def _linked(folder: str) -> list[str]:
    """Return the folders of the files that links in a folder lead to: Debian keeps R's configuration in ``/etc/R``."""
    with contextlib.suppress(OSError):
        return [os.path.dirname(os.path.realpath(entry.path)) for entry in os.scandir(folder) if entry.is_symlink()]
    return []


def _interpreter(program: str) -> str:
    """Return the interpreter in the first line of a script; empty for other programs."""
    try:
        with open(program, "rb") as file:
            first = file.readline(512)
    except OSError:
        return ""
    words = first[2:].decode("utf-8", "replace").split() if first.startswith(b"#!") else []
    if len(words) > 1 and os.path.basename(words[0]) == "env":
        words = words[1:]
    found = shutil.which(words[0]) if words else None
    return found if found is not None and found != program else ""


def _of_words(words: Iterable[str]) -> list[str]:
    """Return the existing absolute paths among words; each may be a list separated by colons."""
    parts = [part for word in words for part in word.split(":")]
    return [part for part in parts if part.startswith("/") and os.path.exists(part)]


def _packages(python: str) -> list[str]:
    """Return the user's own folder for packages, or an empty text, and the folders from which a Python imports."""
    if python == sys.executable:
        used = site.ENABLE_USER_SITE and site.getusersitepackages() in sys.path
        return [site.getuserbase() if used else "", *(path for path in sys.path if path.startswith("/"))]
    base, *paths = _lines([python, "-c", _PACKAGES], {}) or [""]
    return [base, *(path for path in paths if path.startswith("/"))]


def _lines(command: Sequence[str], env: Mapping[str, str]) -> list[str]:
    try:
        answer = subprocess.run(
            [host_program(command[0]), *command[1:]],
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **env},
            cwd="/",  # R runs the .Rprofile of the current folder
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return answer.stdout.splitlines()
