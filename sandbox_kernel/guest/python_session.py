"""A Python session inside its jail: IPython's shell, with the host at the other end of a channel.

Importing this module makes the shell, so that a waiting sandbox has it ready (the gate imports it ahead). ``main`` is
called by the gate in the process that becomes the session's worker.
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import errno
import gc
import getpass
import os
import re
import subprocess
import sys
import traceback
import warnings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, Dict, Iterator, List

    from sandbox_kernel.guest import python_answers, python_await
    from sandbox_kernel.guest.python_display import SCREEN, Hook, Publisher
    from sandbox_kernel.guest.python_install import TOOLS, Installer
    from sandbox_kernel.guest.session_worker import Engine, Worker

os.environ.setdefault("IPYTHONDIR", os.environ.get("TMPDIR", "/tmp") + "/.ipython")

from IPython.core.error import UsageError  # noqa: E402
from IPython.core.interactiveshell import InteractiveShell  # noqa: E402
from traitlets.config import Config  # noqa: E402

if not TYPE_CHECKING:
    from sandbox_guest import python_answers, python_await
    from sandbox_guest.python_display import SCREEN, Hook, Publisher
    from sandbox_guest.python_install import TOOLS, Installer
    from sandbox_guest.session_worker import Engine, Worker

_HERE = os.path.dirname(os.path.abspath(__file__))
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_LIMITS = {
    errno.ENOMEM: "memory", errno.EMFILE: "open_files", errno.ENOSPC: "disk", errno.EFBIG: "disk",
    errno.EDQUOT: "disk", errno.EAGAIN: "processes",
}  # fmt: skip


class Shell(InteractiveShell):
    """IPython as a worker: shows by messages, remembers how a cell failed, runs ``!commands`` on the plain pipes."""

    def __init__(self, **kwargs: Any) -> None:
        self.traceback: List[str] = []
        super().__init__(**kwargs)  # type: ignore[no-untyped-call]

    @contextlib.contextmanager
    def _tee(self, channel: str) -> Iterator[None]:
        """IPython would keep a copy of everything that is printed."""
        yield

    def system(self, cmd: str) -> None:
        """``!command``, on the plain pipes; an interrupt ends the cell and not only the command."""
        sys.stdout.flush()
        command = self.var_expand(cmd, depth=1)  # type: ignore[no-untyped-call]
        code = subprocess.call(command, shell=True, executable=os.environ.get("SHELL"))  # noqa: S602 - asked for
        self.user_ns["_exit_code"] = -(code - 128) if code > 128 else code
        if getattr(self, "system_raise_on_error", False) and code:
            raise subprocess.CalledProcessError(code, cmd)

    def ask_exit(self) -> None:
        """``exit()`` ends the cell; the session belongs to the host."""
        raise SystemExit(0)

    def enable_gui(self, gui: str | None = None) -> None:
        """There is no screen here, so figures are always inline."""
        if gui not in (None, "inline"):
            raise UsageError(f"no window can be opened inside the sandbox: {gui!r}; use %matplotlib inline")

    def _get_exc_info(self, exc_tuple: Any = None) -> Any:
        """A traceback ends in the user's code: how ``input`` works inside is not their concern."""
        kind, error, trace = super()._get_exc_info(exc_tuple)  # type: ignore[no-untyped-call]
        last, walk = None, trace
        while walk is not None:
            if os.path.dirname(walk.tb_frame.f_code.co_filename) != _HERE:
                last = walk
            walk = walk.tb_next
        if last is not None:
            last.tb_next = None
        return kind, error, trace

    def show_usage_error(self, exc: BaseException) -> None:
        """A magic that was used wrongly; the sentence says it all."""
        self.traceback = [f"UsageError: {exc}"]

    def showtraceback(self, *args: Any, **kwargs: Any) -> None:
        """IPython prints groups of exceptions by itself; here the host has them."""
        error = sys.exc_info()[1]
        if type(error).__name__ in ("ExceptionGroup", "BaseExceptionGroup") and error is not None:
            trace = error.__traceback__
            while trace is not None and trace.tb_next is not None and not from_cell(trace):
                trace = trace.tb_next
            lines = traceback.format_exception(type(error), error, trace)
            self.traceback = [line.rstrip("\n") for line in lines]
        else:
            super().showtraceback(*args, **kwargs)

    def _showtraceback(self, etype: type, evalue: BaseException, stb: List[str] | str) -> None:
        """Tracebacks go to the host as IPython made them: a page draws an error once, not on stderr as well."""
        self.traceback = [stb] if isinstance(stb, str) else [str(line) for line in stb]


def from_cell(trace: TracebackType) -> bool:
    """Whether this is where the user's own code begins."""
    return trace.tb_frame.f_code.co_filename.startswith("<ipython-input-")


def text_of(error: BaseException) -> str:
    """What an exception says of itself; its own ``__str__`` may fail."""
    try:
        return str(error)
    except Exception:
        return f"<{type(error).__name__} that cannot be printed>"


def make_shell() -> Shell:
    """The shell, as quiet as a library: no history file and no thread that writes it, no files of its own."""
    config = Config()
    config.HistoryManager.hist_file = ":memory:"
    config.HistoryManager.enabled = False
    config.InteractiveShell.display_pub_class = Publisher
    config.InteractiveShell.displayhook_class = Hook
    config.InteractiveShell.autoindent = False
    shell: Shell = Shell.instance(config=config, display_pub_class=Publisher, displayhook_class=Hook)
    for name in TOOLS:
        shell.register_magic_function(Installer(shell, name), "line", name)  # type: ignore[arg-type]
    shell.set_hook("show_in_pager", show_page, 0)  # type: ignore[no-untyped-call]
    # IPython's advice for terminals; here nothing exits.
    warnings.filterwarnings("ignore", message="To exit: use 'exit'")
    # An interrupt may come before IPython has got round to the cell.
    warnings.filterwarnings("ignore", message="coroutine 'InteractiveShell.run_cell_async' was never awaited")
    python_await.watch_over(shell)
    warm_up(shell)
    return shell


def warm_up(shell: Shell) -> None:
    """Load what the first cell would load."""
    shell.run_cell("pass", silent=True)  # type: ignore[no-untyped-call]
    if shell.display_formatter is not None:
        shell.display_formatter.format(0)  # type: ignore[no-untyped-call]
    forget_all(shell)


def rehearse() -> None:
    """Load what the first error would load: a colouring of tracebacks takes longer to load than the rest of the shell.

    Called in a template, which nobody waits for; the very first session meets its first error without it.
    """
    # A short cell: what is shown of a failure is parsed and coloured whole.
    SHELL.run_cell("raise ValueError", silent=True)  # type: ignore[no-untyped-call]
    forget_all(SHELL)


def forget_all(shell: Shell) -> None:
    """No trace of what was tried."""
    for name in ("last_exc", "last_type", "last_value", "last_traceback"):
        sys.__dict__.pop(name, None)
    shell.last_execution_result, shell.last_execution_succeeded = None, True
    gc.collect()


def show_page(shell: Any, data: Any, *args: object, **kwargs: object) -> None:
    """Documentation asked for with ``?`` is shown in place of a pager."""
    content = data if isinstance(data, dict) else {"text/plain": str(data)}
    shown = {mime: text for mime, text in content.items() if mime == "text/plain"} or content
    shown = {mime: _COLOURS.sub("", text) if isinstance(text, str) else text for mime, text in shown.items()}
    SCREEN.show("display", shown, {})


class Python(Engine):
    """Cells are IPython cells."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self._libc = ctypes.CDLL(None)

    def begin(self, worker: Worker) -> None:
        """See ``Engine``."""
        SCREEN.send = worker.show
        self.worker = worker

        def ask(prompt: object = "", /) -> str:
            return worker.input(str(prompt), False)

        def ask_secret(prompt: str = "Password: ", stream: object = None, **_: object) -> str:
            return worker.input(str(prompt), True)

        builtins.input = ask
        getpass.getpass = ask_secret
        sys.path[:] = ["", *(path for path in sys.path if path not in ("", os.path.dirname(__file__)))]
        sys.argv = [""]

    def run(self, code: str, number: int | None) -> Dict[str, Any]:
        """See ``Engine``."""
        shell = self.shell
        shell.traceback = []
        if number is not None:
            self.count_from(number)
        result = shell.run_cell(code, store_history=True)  # type: ignore[no-untyped-call]
        error = result.error_before_exec or result.error_in_exec
        if error is None:
            return {"status": "ok", "exit_code": 0}
        return self.failed(error)

    def struck(self) -> Dict[str, Any]:
        """See ``Engine``: the interrupt met IPython and not the user's code."""
        failure = {"ename": "KeyboardInterrupt", "evalue": "", "traceback": ["KeyboardInterrupt"]}
        return {"status": "interrupted", "exit_code": 1, "error": failure}

    def count_from(self, number: int) -> None:
        """Cells of other sessions have numbers too: ``In[number]`` shall be this cell."""
        self.shell.execution_count = number
        history: Any = self.shell.history_manager
        for cells in (history.input_hist_parsed, history.input_hist_raw):
            cells.extend([""] * min(number - len(cells), 100_000))

    def failed(self, error: BaseException) -> Dict[str, Any]:
        """How a cell failed, as the host is told."""
        if isinstance(error, SystemExit):
            return self.exited(error)
        lines = self.shell.traceback
        if not lines:
            lines = [line.rstrip("\n") for line in traceback.format_exception(type(error), error, error.__traceback__)]
        failure = {"ename": type(error).__name__, "evalue": text_of(error)[:10_000], "traceback": lines[-200:]}
        status = "interrupted" if isinstance(error, KeyboardInterrupt) else "error"
        return {"status": status, "exit_code": 1, "error": failure, "limit": limit_of(error)}

    @staticmethod
    def exited(error: SystemExit) -> Dict[str, Any]:
        """``sys.exit`` ends the cell with the code that a program would have ended with."""
        code = error.code
        if code is None or isinstance(code, int):
            number = (code or 0) & 0xFF
        else:
            print(code, file=sys.stderr)
            number = 1
        if number == 0:
            return {"status": "ok", "exit_code": 0}
        failure = {"ename": "SystemExit", "evalue": str(code), "traceback": [f"SystemExit: {code}"]}
        return {"status": "error", "exit_code": number, "error": failure}

    def ask(self, what: str, code: str, position: int) -> Dict[str, Any]:
        """See ``Engine``."""
        if what == "complete":
            return python_answers.complete(self.shell, code, position)
        if what == "inspect":
            return python_answers.inspect(self.shell, code, position)
        return python_answers.is_complete(self.shell, code)

    def names(self) -> int:
        """See ``Engine``."""
        space, hidden, nothing = self.shell.user_ns, self.shell.user_ns_hidden, object()
        return sum(
            1 for name, value in space.items() if not name.startswith("_") and value is not hidden.get(name, nothing)
        )

    def touch(self) -> None:
        """See ``Engine``: an empty cell that nobody hears of."""
        shell: Any = self.shell
        if shell.ast_transformers or shell.input_transformers_post:
            return  # the user's own would hear of it
        listeners, last = shell.events.callbacks, (shell.last_execution_result, shell.last_execution_succeeded)
        shell.events.callbacks = {name: [] for name in listeners}
        try:
            with contextlib.suppress(Exception):
                shell.run_cell("pass", silent=True)
                self.names()
        finally:
            shell.events.callbacks = listeners
            shell.last_execution_result, shell.last_execution_succeeded = last

    def flush(self) -> None:
        """See ``Engine``; C libraries have buffers of their own."""
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        self._libc.fflush(None)


def limit_of(error: BaseException) -> str | None:
    """The limit that an exception speaks of, where the kernel has no counter for it."""
    if isinstance(error, MemoryError):
        return "memory"
    if isinstance(error, OSError):
        return _LIMITS.get(error.errno or 0)
    if isinstance(error, RuntimeError) and "start new thread" in str(error):
        return "processes"
    return None


SHELL = make_shell()


def main(channel: int, arguments: List[str]) -> None:
    """Become the worker of a session; never returns."""
    Worker(channel, Python(SHELL)).serve()
