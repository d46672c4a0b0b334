"""Runs one Python program as ``python cell.py`` would, in an interpreter that was started in advance.

The gate calls it in a forked child.
"""

from __future__ import annotations

import errno
import gc
import os
import sys

from ..python import os_patches

TYPE_CHECKING = False
if TYPE_CHECKING:
    import mmap
    from types import ModuleType
    from typing import List

#: Bits in the shared page: the limit that ended the program, for limits without a counter in the kernel.
FLAGS = {"memory": 1, "open_files": 2, "disk": 4, "processes": 8}
#: The limit that an operating-system error speaks of.
ERRNO_LIMITS = {
    errno.ENOMEM: "memory", errno.EMFILE: "open_files", errno.ENOSPC: "disk", errno.EFBIG: "disk",
    errno.EDQUOT: "disk", errno.EAGAIN: "processes",
}  # fmt: skip
#: Where the shared page has the host names that the program looked up in vain, one in a line, and how many bytes.
_NAMES_AT, _NAMES_BYTES = 64, 1024
#: How many errors that led to an error are looked at; a program can chain any number.
_MOST_CAUSES = 20


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
    os_patches.remember_names(lambda name: _write_name(name, flags))
    os_patches.change_by_descriptor()
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
    reason = limit_of(error)
    if reason is not None:
        flags[0] |= FLAGS[reason]


def _write_name(name: str, flags: mmap.mmap) -> None:
    """Add a host name to those in the shared page, while there is room."""
    known, line = names(flags), name.encode("ascii", "replace") + b"\n"
    start = _NAMES_AT + sum(len(one) + 1 for one in known)
    if name not in known and start + len(line) < _NAMES_AT + _NAMES_BYTES:
        flags[start : start + len(line)] = line


def names(flags: mmap.mmap) -> List[str]:
    """Return the host names in the shared page; the program can have written anything there."""
    text = flags[_NAMES_AT : _NAMES_AT + _NAMES_BYTES].partition(b"\0")[0]
    return text.decode("ascii", "replace").split("\n")[:-1]


def limit_of(error: BaseException) -> str | None:
    """The limit at which the interpreter or the kernel raised this error; None for one of the program's own."""
    if isinstance(error, MemoryError):
        return "memory" if was_refused(error) else None
    if isinstance(error, OSError):
        reason = ERRNO_LIMITS.get(error.errno or 0)
        return reason if reason != "memory" or was_refused(error) else None
    if isinstance(error, RuntimeError) and "start new thread" in str(error):
        return "processes"
    return None


def was_refused(error: BaseException) -> bool:
    """Whether a failed allocation raised this error, and no ``raise`` statement of a program.

    The meter's peak cannot tell: one large allocation is refused with little in use. An error that a program raised
    while it handled a failed allocation counts as refused too. Where memory is too scarce to find out, it was refused.
    """
    try:
        seen, statement = 0, _instruction(_raise())
        found: BaseException | None = error
        while found is not None and seen < _MOST_CAUSES:
            memory = isinstance(found, MemoryError) or getattr(found, "errno", None) == errno.ENOMEM
            if memory and _instruction(found) != statement:
                return True
            found, seen = found.__cause__ or found.__context__, seen + 1
    except Exception:
        return True
    return False


def _instruction(error: BaseException) -> int | None:
    """The instruction of the interpreter that raised an error; None where no Python code ran."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return None if trace is None else trace.tb_frame.f_code.co_code[trace.tb_lasti]


def _raise() -> BaseException:
    """An error that a ``raise`` statement raised."""
    try:
        raise MemoryError
    except MemoryError as error:
        return error
