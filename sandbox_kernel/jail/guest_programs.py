"""Our own programs that run inside jails: where they lie, how one is started, and how it is handed what it reads."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os


@functools.lru_cache(maxsize=1)
def guest_folder() -> str:
    """Where the programs lie that run inside jails, compiled where that is possible.

    Jails see them read-only, so what is not compiled here is compiled anew at every start.
    """
    folder = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "guest")
    programs = [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".py")]
    for source in (*programs, os.path.join(os.path.dirname(folder), "jail", "root_stage.py")):
        if not _is_compiled(source):
            import compileall

            with contextlib.suppress(OSError):
                compileall.compile_file(source, quiet=2, force=True)
    return folder


def _is_compiled(source: str) -> bool:
    """Whether the compiled form is there, and not of an older version: a program that was updated has both."""
    try:
        return os.stat(importlib.util.cache_from_source(source)).st_mtime >= os.stat(source).st_mtime
    except OSError:
        return False


def start_of(module: str) -> str:
    """What ``python -c`` is told, with the module's folder as the first argument.

    A program that is given as a script is compiled at every start; imported, its compiled form is used.
    """
    return f"import sys; sys.path.insert(0, sys.argv.pop(1)); import {module}; {module}.main()"


def memory_file(name: str, data: bytes) -> int:
    """A descriptor from which a child reads this; the caller closes it."""
    fd = os.memfd_create(name, 0)
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
