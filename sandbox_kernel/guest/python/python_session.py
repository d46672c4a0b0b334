"""The worker of a Python session: IPython's shell, which the host drives over a channel.

Importing this module makes the shell; the gate imports it in advance, so that a spare jail has the shell ready. The
gate calls ``main`` in the process that becomes the session's worker.
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import getpass
import os
import signal
import subprocess
import sys
import threading
import traceback

from ..gate.python_once import limit_of
from ..session.freeze import uses_accelerator
from ..session.signals import SIG_UNBLOCK, set_mask
from ..session.worker import CellEngine, Worker
from . import background, completions, os_patches, process_state, saving, variables
from .cell_names import CellTexts
from .debugger import DebugServer
from .display import SCREEN
from .interactive.frame import bundle, plain
from .interactive.widgets import COMMS
from .shell import WorkerShell, forget_all, make_shell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterator, List


#: Python's own table of its threads, taken before the first cell: it is read between any two instructions.
_THREADS: Dict[int, threading.Thread] = getattr(threading, "_active", {})
#: How many entries of a traceback are sent, at its beginning and at its end.
_HALF_TRACEBACK = 90
#: What ipykernel sets for the programs that a notebook starts: colours, and no pager that waits for a key.
_FOR_PROGRAMS = {
    "TERM": "xterm-color",
    "CLICOLOR": "1",
    "FORCE_COLOR": "1",
    "CLICOLOR_FORCE": "1",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
}


def text_of(error: BaseException) -> str:
    """Return the text of an exception, also when its own ``__str__`` fails."""
    try:
        return str(error)
    except Exception:
        return f"<{type(error).__name__} that cannot be printed>"


class PythonCells(CellEngine):
    """Runs cells in IPython."""

    def __init__(self, shell: WorkerShell) -> None:
        self.shell = shell
        self._libc = ctypes.CDLL(None)
        self._code = ""
        self._environment_set = False
        self._debugger: DebugServer | None = None
        self._texts = CellTexts()

    def begin(self, worker: Worker) -> None:
        """See ``CellEngine``."""
        SCREEN.send = worker.show
        SCREEN.has_pager = lambda: self.expressions is not None
        self.worker = worker
        self.listened = False
        background.follow_threads()
        background.allow_own_loops()

        def running_cell() -> int:
            """See ``CellStream``: the running cell, or minus the last one between cells."""
            if not self.listened or os.getpid() != worker.pid:
                return 0
            return worker.cell if worker.unfinished else -worker.cell

        def send_late(name: str, cell: int, text: str) -> None:
            worker.channel.send({"op": "late", "id": cell, "name": name, "text": text})

        background.replace_streams(worker.pid, running_cell, send_late)
        plain_children()
        os_patches.remember_names()
        os_patches.change_by_descriptor()

        builtins.input = lambda prompt="", /: worker.input(str(prompt), False)
        getpass.getpass = lambda prompt="Password: ", stream=None, **_: worker.input(str(prompt), True)
        sys.path[:] = ["", *(path for path in sys.path if path != "")]
        sys.argv = [""]
        process_state.note_beginning()
        # No fork is debugged, neither a checkpoint nor one of the user's code.
        os.register_at_fork(after_in_child=lambda: self._end_debugger(forked=True))

    def belongs(self) -> int:
        """See ``CellEngine``."""
        return background.current()

    def go_on(self) -> None:
        """See ``CellEngine``: the event loop runs meanwhile, after what a completion has left to do."""
        if completions.has_more():
            set_mask(SIG_UNBLOCK, [signal.SIGALRM])
            try:
                completions.go_on(self.shell, self.worker.channel.waiting)
            finally:
                self.worker.signals.hold()
            return
        background.run_until_readable(self.worker.channel.fileno())

    def take_over(self) -> None:
        """See ``CellEngine``."""
        background.renew()

    def run(self, code: str, number: int | None) -> Dict[str, Any]:
        """See ``CellEngine``."""
        self.listened = self.expressions is not None
        if self.listened and not self._environment_set:
            self._environment_set = True
            for name, value in _FOR_PROGRAMS.items():
                os.environ.setdefault(name, value)
        self._settle_debugger()
        os_patches.take_names()
        try:
            with background.as_cell(self.worker.cell):
                end = self.run_cell(code, number)
        finally:
            self._settle_debugger()
        tried = os_patches.take_names()
        return {**end, "tried": tried} if tried else end

    def run_cell(self, code: str, number: int | None) -> Dict[str, Any]:
        """Run a cell in IPython, and return how it ended."""
        shell: Any = self.shell
        shell.traceback, shell.display_error = [], None
        self._code = code
        if number is not None:
            # So that ``In[number]`` is this cell: other sessions of the notebook count too.
            shell.execution_count, history = number, shell.history_manager
            for cells in (history.input_hist_parsed, history.input_hist_raw):
                cells.extend([""] * min(number - len(cells), 100_000))
        shell.payload_manager.clear_payload()
        result = shell.run_cell(code, store_history=True)
        error = result.error_before_exec or result.error_in_exec or shell.display_error
        if error is not None:
            return self.failed(error)
        return {"status": "ok", "exit_code": 0, **self.reply()}

    def reply(self) -> Dict[str, Any]:
        """Return what a front end gets beside the output, if one runs this cell: values of expressions, payloads."""
        if self.expressions is None:
            return {}
        shell: Any = self.shell
        values = shell.user_expressions(self.expressions)
        for value in values.values():
            if "data" in value:
                value["data"] = bundle(value["data"])
        return {"reply": {"expressions": plain(values), "payload": plain(shell.payload_manager.read_payload())}}

    def take_comm(self, message: Dict[str, Any]) -> Dict[str, Any]:
        """See ``CellEngine``: what a widget's callback raises is printed, and the session goes on."""
        with background.as_cell(self.worker.cell), self.shell.going_on():
            COMMS.receive(message)
        return {"status": "ok", "exit_code": 0}

    def interrupted_end(self) -> Dict[str, Any]:
        """See ``CellEngine``: the interrupt came while IPython's own code ran, not the user's."""
        failure = {"ename": "KeyboardInterrupt", "evalue": "", "traceback": ["KeyboardInterrupt"]}
        return {"status": "interrupted", "exit_code": 1, "error": failure}

    def failed(self, error: BaseException) -> Dict[str, Any]:
        """Return the fields of ``done`` for a cell that ended with an exception, as which ``sys.exit`` counts."""
        code = 1
        if isinstance(error, SystemExit):
            code = (error.code or 0) & 0xFF if error.code is None or isinstance(error.code, int) else 1
            if self.expressions is None and code == 0:
                return {"status": "ok", "exit_code": 0}
            if self.expressions is None and not isinstance(error.code, int):
                print(error.code, file=sys.stderr)
        lines = self.shell.traceback
        if not lines and self.expressions is None:
            lines = [line.rstrip("\n") for line in traceback.format_exception(type(error), error, error.__traceback__)]
        if self.expressions is None and isinstance(error, SystemExit):
            lines = [f"SystemExit: {error.code}"]
        # Such as the traceback of an endless recursion.
        left_out = len(lines) - 2 * _HALF_TRACEBACK
        if left_out > 0:
            lines = [*lines[:_HALF_TRACEBACK], f"[... {left_out} more ...]\n", *lines[-_HALF_TRACEBACK:]]
        failure = {"ename": type(error).__name__, "evalue": text_of(error)[:10_000], "traceback": lines}
        status = "interrupted" if isinstance(error, KeyboardInterrupt) else "error"
        return {"status": status, "exit_code": code or 1, "error": failure, "limit": limit_of(error)}

    def ask(self, what: str, code: str, position: int) -> Dict[str, Any]:
        """See ``CellEngine``."""
        if what == "debug":
            return self._debug(self.worker.channel.take_descriptor())
        if what == "image":
            return self._save(code)
        if what == "load":
            return self._load(code)
        if what == "complete":
            return completions.complete(self.shell, code, position)
        if what in ("inspect", "source"):
            return completions.inspect(self.shell, code, position, int(what == "source"))
        return completions.is_complete(self.shell, code)

    def _debug(self, fd: int | None) -> Dict[str, Any]:
        """Begin to serve the debugger of a page on a socket; returns the answer to the host."""
        if fd is None:
            return {"ok": False, "reason": "the session got no socket"}
        self._end_debugger()
        try:
            self._debugger = DebugServer(fd, self.shell, self._texts)
        except ImportError as error:
            os.close(fd)
            missing = f"this session's Python has no debugpy ({error})"
            return {"ok": False, "reason": f"{missing}; install it there: pip install 'sandbox-kernel[debugger]'"}
        return {"ok": True}

    def _end_debugger(self, *, forked: bool = False) -> None:
        server, self._debugger = self._debugger, None
        if server is not None:
            server.finish(forked=forked)

    def _settle_debugger(self) -> None:
        """End the debugger if its page has gone, and renew it if an interrupt has ended it; called between cells."""
        if self._debugger is not None and self._debugger.over:
            self._end_debugger()
        elif self._debugger is not None:
            self._debugger.renew()

    def _save(self, order: str) -> Dict[str, Any]:
        """Write the variables to the descriptor that came with the question; an interrupt of the host ends that."""
        into, signals = self.worker.channel.take_descriptor(), self.worker.signals
        if into is None:
            return {}
        signals.forget_interrupts()
        history: Any = self.shell.history_manager
        cells = [text for text in history.input_hist_parsed if isinstance(text, str)]
        apart = not uses_accelerator()
        return saving.save(self._all_variables(), into, order, signals.was_interrupted, cells=cells, apart=apart)

    def _load(self, order: str) -> Dict[str, Any]:
        source, before = self.worker.channel.take_descriptor(), self._all_variables()
        return {} if source is None else saving.load(self.shell.user_ns, source, order, before)

    def _all_variables(self) -> Dict[str, Any]:
        """Return those and the private ones, which functions of cells may use; not those of IPython."""
        space, hidden, nothing = self.shell.user_ns, self.shell.user_ns_hidden, object()
        found = self.variables()
        for name, value in space.items():
            private = type(name) is str and name[:1] == "_" and not saving.NOT_SAVED.fullmatch(name)
            if private and value is not hidden.get(name, nothing):
                found[name] = value
        return found

    def threads(self) -> int:
        """See ``CellEngine``. Threads of numpy or an engine of tables are none of Python's."""
        own = 0 if self._debugger is None else self._debugger.threads()
        return max(0, len(_THREADS) - 1 - own)

    def names(self) -> int:
        """See ``CellEngine``."""
        return len(self.variables())

    def names_asleep(self) -> int | None:
        """See ``CellEngine``. A name that is no plain text has methods of the user's own."""
        space, hidden = self.shell.user_ns, self.shell.user_ns_hidden
        if type(space) is not dict or type(hidden) is not dict or any(type(name) is not str for name in space):
            return None
        return len(self.variables())

    def variables(self) -> Dict[str, Any]:
        """Return the variables that the user has defined."""
        space, hidden, nothing = self.shell.user_ns, self.shell.user_ns_hidden, object()
        return {
            name: value
            for name, value in space.items()
            if not name.startswith("_") and value is not hidden.get(name, nothing)
        }

    def look(self) -> Callable[[], Iterator[Dict[str, List[str]]]] | None:
        """See ``CellEngine``."""
        return lambda: variables.look(self.variables(), self._code)

    def touch(self) -> None:
        """See ``CellEngine``: run an empty cell without calling the shell's event callbacks."""
        shell: Any = self.shell
        if shell.ast_transformers or shell.input_transformers_post:
            return  # the user's own hooks would notice it
        listeners, last = shell.events.callbacks, (shell.last_execution_result, shell.last_execution_succeeded)
        shell.events.callbacks = {name: [] for name in listeners}
        try:
            with contextlib.suppress(Exception):
                # Two lines: a single one may be a magic to IPython, which looks at it more closely.
                shell.run_cell("pass\npass", silent=True)
        finally:
            shell.events.callbacks = listeners
            shell.last_execution_result, shell.last_execution_succeeded = last

    def flush(self) -> None:
        """See ``CellEngine``; also flushes the buffers of C libraries."""
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        self._libc.fflush(None)


SHELL = make_shell()


def rehearse() -> None:
    """Import what the first traceback needs, in a template, where no run waits for it: colours take long to load."""
    # An error in a module, because lines of cells are coloured in a simpler way; a short one, because all is parsed.
    SHELL.run_cell("__import__('colorsys').rgb_to_yiq('', 0, 0)", silent=True)  # type: ignore[no-untyped-call]
    forget_all(SHELL)


def main(channel: int, arguments: List[str]) -> None:
    """Become the worker of a session; never returns."""
    Worker(channel, PythonCells(SHELL)).serve()


# Child interpreters of a session (``multiprocessing``, joblib's loky) start like ordinary Pythons.
#
# Our own interpreter runs with ``-I`` and ``-S``, and ``multiprocessing`` hands its options on: such a child would find
# no installed package.

#: The options that belong to our interpreter, and not to the user's.
_OURS = ("-I", "-S", "-E", "-s", "-P")


def plain_children() -> None:
    """Leave our own options out of what children inherit. Called once, before the first cell."""
    module: Any = subprocess
    inherited = module._args_from_interpreter_flags

    def of_the_user() -> List[str]:
        return [option for option in inherited() if option not in _OURS]

    module._args_from_interpreter_flags = of_the_user
    util: Any = sys.modules.get("multiprocessing.util")
    if util is not None:
        util._args_from_interpreter_flags = of_the_user
