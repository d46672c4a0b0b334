"""What a notebook shows when a wrapped kernel is ended, does not start, or a cell runs too long. Only words."""

from __future__ import annotations

from sandbox_kernel.model import Status
from sandbox_kernel.notebook.page.told_apart import ERROR_NAMES
from sandbox_kernel.receipt import MARK
from sandbox_kernel.wrapped.inner_kernel import KernelEnd
from sandbox_kernel.wrapped.wrap_options import WrapOptions

NO_START = "KernelDidNotStart"


def error(name: str, words: str) -> dict[str, object]:
    """Return the content of an error of ours. Its line begins with our mark, which no output of a kernel can have."""
    return {"ename": name, "evalue": words, "traceback": [f"{MARK} {name}: {words}"]}


def interrupted(timeout_s: float) -> str:
    """Return the line for a cell that was interrupted for its time."""
    return f"{MARK} the cell ran longer than its limit of {timeout_s:g} s and was interrupted\n"


def removed(words: str) -> str:
    """Return the line for something that a page must not get."""
    return f"{MARK} {words}\n"


def ending(end: KernelEnd, options: WrapOptions, *, timed_out: bool) -> tuple[str, str]:
    """Return the name of the error and a sentence for a kernel that has ended."""
    if end.failure:
        return NO_START, f"the kernel could not be started: {end.failure}"
    status = end.verdict.status if end.verdict is not None else Status.KILLED
    if timed_out:
        words = (
            f"the cell ran longer than its limit of {options.timeout_s:g} s and ignored the interrupt, so its kernel "
        )
        words += "was ended; variables are lost. Give it more time with: sandbox-kernel wrap --timeout"
        return ERROR_NAMES[Status.TIMEOUT], words
    if status is Status.MEMORY_EXCEEDED:
        words = f"the kernel used more than its limit of {options.memory_mb} MB and was ended; variables are lost. "
        words += "Give it more memory with: sandbox-kernel wrap --memory"
        return ERROR_NAMES[status], words
    if end.exit_code is not None and end.exit_code < 128:
        return ERROR_NAMES[Status.KILLED], f"the kernel ended itself with exit code {end.exit_code}; variables are lost"
    if end.exit_code is not None:
        return ERROR_NAMES[Status.KILLED], f"the kernel was killed by signal {end.exit_code - 128}; variables are lost"
    limit = end.verdict.limit if end.verdict is not None else None
    why = f"at its limit of {limit}" if limit is not None else "by the sandbox"
    return ERROR_NAMES[Status.KILLED], f"the kernel was ended {why}; variables are lost"
