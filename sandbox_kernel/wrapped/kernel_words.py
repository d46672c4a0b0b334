"""What a notebook shows when a wrapped kernel is ended, does not start, or a cell runs too long. Only words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sandbox_kernel.model import FsChange, Note, Status
from sandbox_kernel.notebook.render import ERROR_NAMES
from sandbox_kernel.receipt import MARK, one_line, unmarked
from sandbox_kernel.workspace.tree.paths import display_name
from sandbox_kernel.wrapped.inner_kernel import KernelEnd
from sandbox_kernel.wrapped.wrap_options import WrapOptions

NO_START = "KernelDidNotStart"
#: The most files that one line names.
_NAMED = 5
_LONGEST = 2000


def error(name: str, words: str) -> dict[str, object]:
    """Return the content of an error of ours. Its line begins with our mark, which no output of a kernel can have."""
    words = unmarked(one_line(words, _LONGEST))
    return {"ename": name, "evalue": words, "traceback": [f"{MARK} {name}: {words}"]}


def remark(words: str) -> str:
    """Return the line for something that was removed, or that a user should know. It may quote the kernel."""
    return f"{MARK} {unmarked(one_line(words, _LONGEST))}\n"


def changed(changes: Sequence[FsChange], missing: Iterable[Note]) -> Iterator[str]:
    """Yield what to say of what a cell changed in the user's folder, and the notes on that."""
    if changes:
        names = ", ".join(f"{display_name(change.path)} ({change.kind})" for change in changes[:_NAMED])
        more = f" and {len(changes) - _NAMED} more" if len(changes) > _NAMED else ""
        yield f"not written to the folder yet: {names}{more}; see or write it with: sandbox-kernel changes"
    yield from map(str, missing)


def no_start(why: object, last_words: str = "") -> dict[str, object]:
    """Return the error of every cell of a kernel that did not come up; ``last_words`` are what its program printed."""
    words = f"the kernel did not come up: {why}"
    if last_words:
        words += (
            f". It said: {last_words}. If it lacks a file that is there outside, show it: sandbox-kernel wrap --mount "
            "PATH:PATH"
        )
    return error(NO_START, words)


def ending(end: KernelEnd, options: WrapOptions, *, timed_out: bool, broken: bool) -> tuple[str, str]:
    """Return the name of the error and a sentence for a kernel that has ended."""
    status = end.verdict.status if end.verdict is not None else Status.KILLED
    limit = end.verdict.limit if end.verdict is not None else None
    if broken:
        how = "broke its connection to the front end and was ended"
    elif end.failure:
        return NO_START, f"the kernel could not be started: {end.failure}"
    elif timed_out:
        return ERROR_NAMES[Status.TIMEOUT], (
            f"the cell ran longer than its limit of {options.timeout_s:g} s and ignored the interrupt, so its kernel "
            "was ended; variables are lost. Give it more time with: sandbox-kernel wrap --timeout"
        )
    elif status is Status.MEMORY_EXCEEDED:
        return ERROR_NAMES[status], (
            f"the kernel used more than its limit of {options.memory_mb} MB and was ended; variables are lost. "
            "Give it more memory with: sandbox-kernel wrap --memory"
        )
    elif end.exit_code is not None and end.exit_code >= 128:
        how = f"was killed by signal {end.exit_code - 128}"
    elif end.exit_code is not None:
        how = f"ended itself with exit code {end.exit_code}"
    else:
        how = f"was ended {f'at its limit of {limit}' if limit is not None else 'by the sandbox'}"
    return ERROR_NAMES[Status.KILLED], f"the kernel {how}; variables are lost"
