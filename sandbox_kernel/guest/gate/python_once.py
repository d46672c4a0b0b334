"""Runs one Python program as ``python cell.py`` would, in an interpreter that was started in advance.

The gate calls it in a forked child. Standard library only, Python 3.8 or later, few imports (see ``gate.py``).
"""

from __future__ import annotations

import errno
import gc
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import mmap
    from types import ModuleType
    from typing import List

#: Bits in the shared page: the limit that ended the program, for limits without a counter in the kernel.
FLAGS = {"memory": 1, "open_files": 2, "disk": 4, "processes": 8}


def rehearse() -> None:
    """Run a tiny program, so that the memory pages that every program uses are copied already; changes nothing."""
    import atexit
    import builtins
    import io

    module = type(sys)("__main__")
    module.__dict__["__builtins__"] = builtins
    exec(compile(b"def f(): return [1]\nf()", "", "exec", dont_inherit=True), module.__dict__)
    _ = (atexit, io, gc.collect())


def run(source: bytes, argv: List[str], flags: mmap.mmap) -> None:
    """Run a program as ``python cell.py`` would, in this interpreter; never returns."""
    import builtins

    path = argv[0]
    module = type(sys)("__main__")
    module.__file__ = path
    module.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = module
    sys.argv = list(argv)
    sys.path.insert(0, os.getcwd())
    code = 0
    try:
        exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)
    except SystemExit as error:
        code = exit_code(error.code)
    except BaseException as error:
        trace = error.__traceback__
        error.__traceback__ = trace.tb_next if trace is not None else None
        note(error, flags)
        code = 130 if isinstance(error, KeyboardInterrupt) else 1
        try:
            sys.excepthook(type(error), error, error.__traceback__)
        except SystemExit as asked:
            code = exit_code(asked.code)
    finish(module, code)


def exit_code(value: object) -> int:
    """Return the exit code of ``sys.exit(value)``. A value that is not a number is printed to stderr and gives 1."""
    if value is None:
        return 0
    if isinstance(value, int):
        return value & 0xFF
    print(value, file=sys.stderr)
    return 1


def finish(module: ModuleType, code: int) -> None:
    """End as an interpreter does, but without tearing down every module.

    A full teardown writes to every memory page that is shared with the parent, which takes longer than most programs.
    Everything that a program can notice is done: joins threads, calls exit handlers, drops its globals (so that
    ``__del__`` runs and files close), and flushes files that are still open.
    """
    import atexit
    import io

    try:
        if "threading" in sys.modules:
            sys.modules["threading"]._shutdown()
        atexit._run_exitfuncs()
        module.__dict__.clear()
        gc.collect()
        for item in gc.get_objects():
            if isinstance(item, (io.BufferedWriter, io.BufferedRandom, io.TextIOWrapper)) and not item.closed:
                try:
                    item.flush()
                except (OSError, ValueError):
                    pass
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except OSError:
        code = code or 120
    finally:
        os._exit(code)


def note(error: BaseException, flags: mmap.mmap) -> None:
    """Set the flag of the limit that an exception shows, for limits without a counter in the kernel."""
    reason = None
    if isinstance(error, MemoryError):
        reason = "memory"
    elif isinstance(error, OSError):
        reason = {
            errno.ENOMEM: "memory",
            errno.EMFILE: "open_files",
            errno.ENOSPC: "disk",
            errno.EFBIG: "disk",
            errno.EDQUOT: "disk",
            errno.EAGAIN: "processes",
        }.get(error.errno or 0)
    elif isinstance(error, RuntimeError) and "start new thread" in str(error):
        reason = "processes"
    if reason is not None:
        flags[0] |= FLAGS[reason]
