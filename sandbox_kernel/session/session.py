"""State between cells: what ``box.session(...)`` gives.

Every cell is a transaction. One that ends by itself, well or with an exception, is kept. One that times out, exceeds
its memory, crashes or has to be stopped hard leaves its output, and the session is as it was before it. One cell runs
at a time; a second caller waits for its turn. ``interrupt`` and ``close`` may be called from any thread meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn

from sandbox_kernel.backends.base import OnOutput
from sandbox_kernel.backends.host_failures import host_trouble
from sandbox_kernel.errors import InvalidRequest, SessionError
from sandbox_kernel.jail.meter.meter import OnUsage
from sandbox_kernel.jail.streams.stop import Stop
from sandbox_kernel.limits import DEFAULT_TIMEOUT_S
from sandbox_kernel.model import ExecResult, Language
from sandbox_kernel.session import code_answers
from sandbox_kernel.session.cell.cell_check import check_listeners, make_order, takes_memory
from sandbox_kernel.session.cell.cell_order import CellRequest
from sandbox_kernel.session.cell.cell_prompt import OnInput
from sandbox_kernel.session.cell.displays import OnDisplay
from sandbox_kernel.session.cell.listeners import ListenerFailed
from sandbox_kernel.session.opening.spec import SessionSpec
from sandbox_kernel.session.supervisor import WorkerSupervisor
from sandbox_kernel.session.worker.checkpoints import Checkpoint
from sandbox_kernel.session.worker.memory_budget import private_bytes
from sandbox_kernel.session.worker.messages import What
from sandbox_kernel.session.worker.worker import JailedWorker
from sandbox_kernel.workspace.shared_folder import FolderLink
from sandbox_kernel.workspace.tree.paths import plain_path
from sandbox_kernel.workspace.tree.walk import DirEntry

if TYPE_CHECKING:
    import asyncio

    from sandbox_kernel.jail.streams.asking import AnyOnInput

#: How long a question about code may take; jedi gives up earlier by itself.
ASK_S = 5.0


class NotOfThisSession(SessionError, AttributeError):
    """A method that sessions of another kind have; ``hasattr`` says no, as it should."""


class Session:
    """One session. Use it as a context manager, or call ``close``; a forgotten one ends with its last reference."""

    def __init__(
        self,
        spec: SessionSpec,
        begin: Callable[[], JailedWorker],
        on_close: Callable[[], None] | None = None,
        share: FolderLink | None = None,
    ) -> None:
        self._spec = spec
        self._on_close = on_close
        self._guard = threading.Lock()
        self._stop: Stop | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._supervisor = WorkerSupervisor(spec, begin, share)
        self._finalizer = weakref.finalize(self, self._supervisor.end)
        _sessions.add(self)

    @property
    def name(self) -> str:
        """What the session is called; unique only to whoever named it."""
        return self._spec.name

    @property
    def language(self) -> Language:
        """What its cells are written in."""
        return self._spec.language

    @property
    def memory_mb(self) -> int:
        """Its memory limit; a cell that was given more has raised it."""
        return self._supervisor.memory_mb

    def usual_memory(self, usual_mb: int) -> int:
        """What a cell has that names no memory, where this much is usual.

        More than that when a cell before it was given more by name: what that cell made is there, and the usual limit
        would refuse every cell.
        """
        return max(usual_mb, self.memory_mb) if self.memory_mb > self._spec.memory_mb else usual_mb

    def takes_memory(self, memory_mb: int) -> bool:
        """Whether a single cell can have this limit: a worker cannot leave what it was started with far behind."""
        return takes_memory(self._spec, self.memory_mb, memory_mb)

    @property
    def alive(self) -> bool:
        """Whether the session can run another cell."""
        live = self._supervisor.live
        return not self._supervisor.closed and live is not None and live.jail.alive

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(
        self,
        code: str,
        timeout: float = DEFAULT_TIMEOUT_S,
        on_output: OnOutput | None = None,
        on_input: OnInput | None = None,
        *,
        on_display: OnDisplay | None = None,
        on_usage: OnUsage | None = None,
        number: int | None = None,
        memory_mb: int | None = None,
        cpu_seconds: float | None = None,
        output_bytes: int | None = None,
    ) -> ExecResult:
        """Run one cell. Callbacks are called on this thread, ``on_input`` on one of its own.

        ``on_usage`` hears a few times a second how much memory is in use, and the limit.

        ``number`` is the notebook's execution count, for tracebacks and ``Out``; the session counts by itself else.

        ``memory_mb``, ``cpu_seconds`` and ``output_bytes`` are for this cell alone; but memory that a cell was given
        beyond the session's is the session's from then on, since what the cell made lives on.
        """
        asked = CellRequest(
            code=code,
            timeout=timeout,
            number=number,
            memory_mb=memory_mb,
            cpu_seconds=cpu_seconds,
            output_bytes=output_bytes,
            on_output=on_output,
            on_input=on_input,
            on_display=on_display,
            on_usage=on_usage,
        )
        with host_trouble():
            stop = Stop()
        with contextlib.closing(stop):
            return self._run(asked, stop)

    def _run(self, asked: CellRequest, stop: Stop) -> ExecResult:
        """Run one cell on the calling thread until it ends; ``stop`` interrupts it, before it began too."""
        order = make_order(self._spec, self.memory_mb, asked)
        try:
            with host_trouble(), self._supervisor.turn() as live, self._stoppable(stop):
                return self._supervisor.run(live, order, stop)
        except ListenerFailed as error:
            raise error.reason from None

    async def arun(
        self,
        code: str,
        timeout: float = DEFAULT_TIMEOUT_S,
        on_output: OnOutput | None = None,
        on_input: AnyOnInput | None = None,
        *,
        on_display: OnDisplay | None = None,
        on_usage: OnUsage | None = None,
        number: int | None = None,
        memory_mb: int | None = None,
        cpu_seconds: float | None = None,
        output_bytes: int | None = None,
        cancel: asyncio.Event | None = None,
    ) -> ExecResult:
        """The same, asynchronously: callbacks are called on this loop, and ``on_input`` may be a coroutine function.

        Only ``on_usage`` is called on the thread that runs the cell.
        Setting ``cancel`` interrupts the cell; cancelling the task does too, and waits until the cell has ended.
        """
        from sandbox_kernel.backends.async_bridge import LoopBridge, in_thread, on_this_loop

        self._supervisor.refuse_if_closed()
        if self._threads is None:
            self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sandbox-session")
        asked = CellRequest(
            code=code,
            timeout=timeout,
            number=number,
            memory_mb=memory_mb,
            cpu_seconds=cpu_seconds,
            output_bytes=output_bytes,
            on_output=on_output,
            on_input=on_this_loop(on_input),
            on_display=on_display,
            on_usage=on_usage,
        )
        check_listeners(asked)

        def work(bridge: LoopBridge) -> ExecResult:
            on_output, on_display = bridge.on_loop(asked.on_output), bridge.on_loop(asked.on_display)
            return self._run(replace(asked, on_output=on_output, on_display=on_display), bridge.stop)

        return await in_thread(work, cancel, self._threads)

    def interrupt(self) -> bool:
        """Stop the running cell as Ctrl-C would: KeyboardInterrupt first, and a rollback if it does not end.

        Callable from any thread; False when no cell runs.
        """
        with self._guard:
            if self._stop is None:
                return False
            self._stop.set()
            return True

    def undo(self, n: int = 1) -> ExecResult:
        """Go back to the state before the last ``n`` cells that are in it. The result says what is left."""
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise InvalidRequest(f"undo takes a number of cells of at least 1, got {n!r}")
        with host_trouble(), self._supervisor.turn() as live:
            return self._supervisor.undo(live, n)

    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """The states that ``undo`` can go back to, nearest first, with the memory that each alone holds."""
        with host_trouble(), self._supervisor.turn() as live:
            live.look_for_lost()
            held = private_bytes(live.jail.init_pid)
            return tuple(replace(item, memory_bytes=held.get(item.pid)) for item in live.shelf.reachable(live.cell))

    def read_file(self, path: str | os.PathLike[str]) -> bytes:
        """The content of a file of the session's work folder; waits for a running cell."""
        with self._supervisor.turn() as live:
            return self._supervisor.files.read(live, plain_path(path))

    def write_file(self, path: str | os.PathLike[str], data: bytes | str) -> None:
        """Make or replace a file of the work folder; a cell that is rolled back later does not take it away."""
        with self._supervisor.turn() as live:
            self._supervisor.files.write(live, plain_path(path), data)

    def list_dir(self, path: str | os.PathLike[str] = ".") -> tuple[DirEntry, ...]:
        """What a folder of the work folder holds, sorted by name."""
        with self._supervisor.turn() as live:
            return self._supervisor.files.list_dir(live, plain_path(path))

    def restart(self) -> None:
        """Begin again with no variables and no checkpoints, and with the files that the sandbox shares; a running
        cell is ended.
        """
        self._supervisor.refuse_if_closed()
        with self._supervisor.lock_after_kill():
            self._supervisor.again()

    def complete(self, code: str, pos: int) -> Mapping[str, object]:
        """What could stand at ``pos``: ``matches``, ``cursor_start``, ``cursor_end``, ``metadata``."""
        return code_answers.completions(self._ask("complete", code, pos), code, pos)

    def inspect(self, code: str, pos: int) -> Mapping[str, object]:
        """What stands at ``pos``, as a MIME bundle; empty when unknown."""
        return code_answers.documentation(self._ask("inspect", code, pos))

    def is_complete(self, code: str) -> Mapping[str, object]:
        """``status`` is complete, incomplete, invalid or unknown; ``indent`` is for the next line."""
        return code_answers.completeness(self._ask("is_complete", code, 0))

    def close(self) -> None:
        """End the session and everything in it, a running cell included. May be called twice."""
        with self._guard:
            if self._supervisor.closed:
                return
            self._supervisor.closed = True
        with self._supervisor.lock_after_kill():
            self._supervisor.end()
        self._finalizer.detach()
        if self._threads is not None:
            self._threads.shutdown(wait=False)
        if self._on_close is not None:
            self._on_close()

    @contextlib.contextmanager
    def _stoppable(self, stop: Stop) -> Iterator[None]:
        """Let ``interrupt`` raise this stop sign meanwhile."""
        with self._guard:
            self._stop = stop
        try:
            yield
        finally:
            with self._guard:
                self._stop = None

    def _ask(self, what: What, code: str, pos: int) -> Mapping[str, object]:
        if not code_answers.worth_asking(code, pos):
            return {}
        if self._supervisor.busy:
            # A cell runs: its worker cannot answer, and nobody should wait for it.
            return {}
        with host_trouble(), self._supervisor.turn() as live:
            try:
                return live.ask(what, code, min(max(0, pos), len(code)), ASK_S).answer
            except SessionError:
                self._supervisor.revive(live)
                return {}

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """``fork`` and ``save`` are where the guest allows them; whoever calls them elsewhere is told where."""
            if name in ("fork", "save"):
                raise NotOfThisSession(
                    f"a {self.language} session of processes has no {name}: only the memory of a WebAssembly guest can "
                    f"be copied; open it with box.session({str(self.language)!r}, backend='wasm')"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _forget(self) -> None:
        """In a forked child the session is the parent's: let go of its descriptors, end nothing."""
        self._finalizer.detach()
        self._supervisor.forget()


_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


def _forget_all() -> None:
    for session in list(_sessions):
        session._forget()


os.register_at_fork(after_in_child=_forget_all)
