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
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
    folder = os.path.join(package, "guest")
    programs = [
        os.path.join(place, name) for place, _, names in os.walk(folder) for name in names if name.endswith(".py")
    ]
    for source in (*programs, os.path.join(package, "jail", "root", "root_stage.py")):
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
    """Return the ``python -c`` text that starts a program of ``guest/``; the folder is its first argument.

    The folder becomes the package ``sandbox_guest``, without a place on ``sys.path``: a module of the user's is never
    hidden by one of ours. A program that is given as a script is compiled at every start; imported, its compiled form
    is used.
    """
    package = (
        "import sys; p = sys.modules['sandbox_guest'] = type(sys)('sandbox_guest'); p.__path__ = [sys.argv.pop(1)]"
    )
    return f"{package}; from sandbox_guest.{module} import main; main()"


def memory_file(name: str, data: bytes) -> int:
    """A descriptor from which a child reads this; the caller closes it."""
    fd = os.memfd_create(name, 0)
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
