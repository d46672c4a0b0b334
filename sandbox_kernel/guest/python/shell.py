"""IPython's shell as the worker of a session: writes no files of its own; sends errors and help pages to the host."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import pdb
import platform
import re
import subprocess
import sys
import traceback
import warnings

from . import background

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, ClassVar, Dict, Iterator, List


os.environ.setdefault("IPYTHONDIR", os.environ.get("TMPDIR", "/tmp") + "/.ipython")

from IPython.core import async_helpers, debugger  # noqa: E402
from IPython.core.autocall import ZMQExitAutocall  # noqa: E402
from IPython.core.error import UsageError  # noqa: E402
from IPython.core.events import EventManager  # noqa: E402
from IPython.core.interactiveshell import InteractiveShell  # noqa: E402
from traitlets.config import Config  # noqa: E402

from .cell_names import CELL_FOLDER, cell_file  # noqa: E402
from .display import SCREEN, WorkerDisplayHook, WorkerPublisher  # noqa: E402
from .interactive import renderers  # noqa: E402
from .magics import add_installers, add_magics, keep_own_history, run_command  # noqa: E402

#: The folder of all guest programs; tracebacks do not show frames from it.
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
#: How many errors that led to an error are looked at; a program may chain as many as it likes.
_MOST_EARLIER = 20
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class CellEvents(EventManager):
    """IPython's callbacks before and after a cell. An interrupt ends the cell; IPython would print it and go on."""

    def trigger(self, event: str, *args: Any, **kwargs: Any) -> None:
        """Call the callbacks of an event; show the errors of those that fail."""
        for function in self.callbacks[event][:]:
            try:
                function(*args, **kwargs)
            except Exception:
                print(f"Error in callback {function} (for {event}), with arguments args {args},kwargs {kwargs}:")
                with self.shell.going_on():  # type: ignore[attr-defined]
                    self.shell.showtraceback()


class WorkerShell(InteractiveShell):
    """IPython as a worker: shows by messages, remembers how a cell failed, runs ``!commands``."""

    def __init__(self, **kwargs: Any) -> None:
        #: The traceback with which the cell ends.
        self.traceback: List[str] = []
        #: How many pieces of code run inside one another: a cell, and what it runs with ``run_cell``.
        self._running = 0
        self._ends_cell = False
        #: The exception of an object that could not be shown.
        self.display_error: BaseException | None = None
        super().__init__(**kwargs)  # type: ignore[no-untyped-call]
        self.kernel = ShellKernel(self)

    def init_events(self) -> None:
        """Use our own callbacks in place of IPython's."""
        super().init_events()  # type: ignore[no-untyped-call]
        usual, self.events = self.events, CellEvents(self, ())
        self.events.callbacks = usual.callbacks

    @contextlib.contextmanager
    def _tee(self, channel: str) -> Iterator[None]:
        """Do nothing: IPython would keep a copy of everything that is printed."""
        yield

    def system(self, cmd: str) -> None:
        """Run ``!command``; an interrupt ends the whole cell, not only the command."""
        code = run_command(self.var_expand(cmd, depth=1))  # type: ignore[no-untyped-call]
        self.user_ns["_exit_code"] = -(code - 128) if code > 128 else code
        if getattr(self, "system_raise_on_error", False) and code:
            raise subprocess.CalledProcessError(code, cmd)

    def get_parent(self) -> Dict[str, Any]:
        """Return a stand-in for the message that the front end sent for the cell to which this code belongs."""
        cell = background.current()
        return {"header": {"msg_id": f"sandbox-cell-{cell}", "msg_type": "execute_request"}, background.NOTED: cell}

    def set_parent(self, parent: Dict[str, Any]) -> Any:
        """Let this thread belong to the cell of a parent; returns a token for ``reset_thread_parent``."""
        cell = parent.get(background.NOTED) if isinstance(parent, dict) else None
        return background.CELL.set(cell if isinstance(cell, int) else background.current())

    set_thread_parent = set_parent

    def reset_thread_parent(self, token: Any) -> None:
        """Let this thread belong to the cell that it belonged to before."""
        background.CELL.reset(token)

    def set_next_input(self, text: str, replace: bool = False) -> None:
        """Ask the front end to put text into the next cell, or into this one; the host decides whether it may."""
        payloads: Any = self.payload_manager
        payloads.write_payload({"source": "set_next_input", "text": text, "replace": replace})

    def ask_exit(self) -> None:
        """End only the cell on ``exit()``: the host decides when the session ends."""
        __tracebackhide__ = True
        raise SystemExit(0)

    def enable_gui(self, gui: str | None = None) -> None:
        """Refuse windows: there is no screen here, so figures are always inline. The loop of asyncio runs anyway."""
        if gui not in (None, "inline", "asyncio"):
            raise UsageError(f"no window can be opened inside the sandbox: {gui!r}; use %matplotlib inline or widget")

    def _get_exc_info(self, exc_tuple: Any = None) -> Any:
        """Cut frames of our own programs off the end of tracebacks, such as those of ``input`` and of lookups."""
        kind, error, trace = super()._get_exc_info(exc_tuple)  # type: ignore[no-untyped-call]
        cut_our_frames(trace)
        earlier: BaseException | None = error
        for _ in range(_MOST_EARLIER):
            earlier = None if earlier is None else earlier.__cause__ or earlier.__context__
            cut_our_frames(getattr(earlier, "__traceback__", None))
        return kind, error, trace

    async def run_code(self, *args: Any, **kwargs: Any) -> Any:
        """Run compiled code, and count how much of it runs inside one another."""
        with self.going_on():
            return await super().run_code(*args, **kwargs)  # type: ignore[no-untyped-call]

    @contextlib.contextmanager
    def going_on(self) -> Iterator[None]:
        """Say that errors which are shown meanwhile do not end the cell, but for one that ``run_code`` caught."""
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1

    def show_usage_error(self, exc: BaseException) -> None:
        """Show the message of a wrongly used magic without a traceback."""
        self._showtraceback(type(exc), exc, f"UsageError: {exc}")

    def showtraceback(self, *args: Any, **kwargs: Any) -> None:
        """Show an error. A group of exceptions is shown as any other; IPython would print it."""
        error, found = sys.exc_info()[1:]
        # The frame that caught the error: that of the cell itself, or one of the program or a magic inside it.
        self._ends_cell = found is not None and found.tb_frame.f_code is InteractiveShell.run_code.__code__
        try:
            if type(error).__name__ in ("ExceptionGroup", "BaseExceptionGroup") and error is not None:
                trace = error.__traceback__
                # It begins with the user's code.
                while trace and trace.tb_next and not trace.tb_frame.f_code.co_filename.startswith(CELL_FOLDER):
                    trace = trace.tb_next
                lines = traceback.format_exception(type(error), error, trace)
                self._showtraceback(type(error), error, [line.rstrip("\n") for line in lines])
            else:
                super().showtraceback(*args, **kwargs)
        finally:
            self._ends_cell = False

    def _showtraceback(self, etype: type, evalue: BaseException, stb: List[str] | str) -> None:
        """Keep the traceback with which the cell ends for the host, so that a page shows it once; show others now."""
        lines = [stb] if isinstance(stb, str) else [str(line) for line in stb]
        if self.displayhook.is_active:
            self.traceback, self.display_error = lines, evalue
        elif self._running > self._ends_cell:
            SCREEN.show_error(etype.__name__, evalue, lines)
        else:
            self.traceback = lines


# Libraries (pandas, rich and many more) tell a notebook from a terminal by the name of the class that ipykernel has.
WorkerShell.__name__ = WorkerShell.__qualname__ = "ZMQInteractiveShell"
WorkerShell.__module__ = "ipykernel.zmqshell"


def cut_our_frames(trace: TracebackType | None) -> None:
    """Cut frames of our own programs off the end of a traceback."""
    last = None
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(_OURS):
            last = trace
        trace = trace.tb_next
    if last is not None:
        last.tb_next = None


def make_shell() -> WorkerShell:
    """Make the shell, without a history file, its writer thread, or other files of its own."""
    config = Config()
    config.HistoryManager.hist_file = ":memory:"
    config.HistoryManager.enabled = False
    config.InteractiveShell.display_pub_class = WorkerPublisher
    config.InteractiveShell.displayhook_class = WorkerDisplayHook
    config.InteractiveShell.autoindent = False
    # Libraries look for this section to tell a notebook from a terminal.
    config.IPKernelApp.name = "sandbox"
    exiter = ZMQExitAutocall()  # type: ignore[no-untyped-call]
    shell: WorkerShell = WorkerShell.instance(
        config=config, display_pub_class=WorkerPublisher, displayhook_class=WorkerDisplayHook, exiter=exiter
    )
    exiter.set_ip(shell)  # type: ignore[no-untyped-call]
    keep_own_history(shell)
    shell.compile.get_code_name = cell_file  # type: ignore[method-assign, assignment]
    add_installers(shell)
    add_magics(shell)
    # ``%store``; its database lies in the session's own /tmp.
    extensions: Any = shell.extension_manager
    extensions.load_extension("storemagic")
    shell.set_hook("show_in_pager", show_page, 0)  # type: ignore[no-untyped-call]
    # Advice for terminals; here ``exit`` only ends the cell.
    warnings.filterwarnings("ignore", message="To exit: use 'exit'")
    # An interrupt may come before IPython awaits the cell.
    warnings.filterwarnings("ignore", message="coroutine 'InteractiveShell.run_cell_async' was never awaited")
    # IPython before version 8 does not expose its loop and is left as it is.
    if hasattr(async_helpers, "get_asyncio_loop"):
        shell.loop_runner_map["asyncio"] = (background.CellRunner(), True)
        shell.loop_runner = "asyncio"
    # ``pdb.set_trace()`` and ``breakpoint()`` show colours and the lines around, as in ipykernel.
    pdb.Pdb, pdb.set_trace = debugger.Pdb, debugger.set_trace  # type: ignore[misc, assignment]
    renderers.install()
    # Run and format a trivial cell, so that the modules that the first cell needs are loaded.
    shell.run_cell("pass", silent=True)  # type: ignore[no-untyped-call]
    if shell.display_formatter is not None:
        shell.display_formatter.format(0)  # type: ignore[no-untyped-call]
    forget_all(shell)
    return shell


def forget_all(shell: WorkerShell) -> None:
    """Remove all traces of earlier cells from the shell."""
    for name in ("last_exc", "last_type", "last_value", "last_traceback"):
        sys.__dict__.pop(name, None)
    shell.last_execution_result, shell.last_execution_succeeded = None, True
    gc.collect()


def show_page(shell: Any, data: Any, start: int = 0, *args: object, **kwargs: object) -> None:
    """Send documentation asked for with ``?`` to the front end's pager; without one it is output of the cell."""
    content = data if isinstance(data, dict) else {"text/plain": str(data)}
    shown = {mime: text for mime, text in content.items() if mime == "text/plain"} or content
    if SCREEN.has_pager():
        shell.payload_manager.write_payload({"source": "page", "data": shown, "start": int(start)}, single=False)
        return
    shown = {mime: _COLOURS.sub("", text) if isinstance(text, str) else text for mime, text in shown.items()}
    SCREEN.show("display", shown, {})


class ShellKernel:
    """``get_ipython().kernel``: what libraries ask of a kernel; pandas takes a shell without one for a terminal."""

    implementation = "ipython"
    language = "python"
    language_info: ClassVar = {
        "name": "python", "version": platform.python_version(), "mimetype": "text/x-python"
    }  # fmt: skip

    def __init__(self, shell: Any) -> None:
        self.shell = shell

    @property
    def comm_manager(self) -> Any:
        """Return the manager of this session's comms, which lead to the widgets' frames."""
        return importlib.import_module("comm").get_comm_manager()

    def get_parent(self, channel: str | None = None) -> Dict[str, Any]:
        """As the shell's."""
        return self.shell.get_parent()  # type: ignore[no-any-return]
