"""Our own programs that run inside jails: their folder, how one is started, and how data is passed to it."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os

from sandbox_kernel.util.linux_calls import memfd_create


@functools.lru_cache(maxsize=1)
def guest_folder() -> str:
    """Return the folder of our programs for jails, compiled if possible: jails see the folder read-only."""
    package = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    folder = os.path.join(package, "guest")
    for place, _, names in os.walk(folder):
        for source in (os.path.join(place, name) for name in names if name.endswith(".py")):
            if not _is_compiled(source):
                import compileall

                with contextlib.suppress(OSError):
                    compileall.compile_file(source, quiet=2, force=True)
    return folder


def _is_compiled(source: str) -> bool:
    """Whether there is bytecode that is not older than the source; after an update the old bytecode is still there."""
    try:
        return os.stat(importlib.util.cache_from_source(source)).st_mtime >= os.stat(source).st_mtime
    except OSError:
        return False


def start_of(module: str) -> str:
    """Return the ``python -c`` text that starts a program of ``guest/``; the folder is its first argument.

    The folder becomes the package ``sandbox_guest`` without being on ``sys.path``, so none of our modules hides one of
    the user's. The program is imported and not run as a script, because only imports use the compiled bytecode.
    """
    package = (
        "import sys; p = sys.modules['sandbox_guest'] = type(sys)('sandbox_guest'); p.__path__ = [sys.argv.pop(1)]"
    )
    return f"{package}; from sandbox_guest.{module} import main; main()"


def memory_file(name: str, data: bytes) -> int:
    """Return a descriptor of a memory file with this content, for a child to read. The caller closes it."""
    fd = memfd_create(name)
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
