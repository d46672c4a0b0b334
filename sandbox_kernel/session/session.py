"""``Session``: the object that ``box.session(...)`` returns. It keeps state between cells.

Every cell is a transaction. If a cell ends by itself, also with an exception, its changes are kept. If it times out,
exceeds its memory, crashes or has to be killed, its output is kept and the session is rolled back to the state before
it. One cell runs at a time; a second caller waits. ``interrupt`` and ``close`` may be called from any thread meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING

from sandbox_kernel.backends.checks import host_trouble
from sandbox_kernel.errors import PolicyViolation, SessionError
from sandbox_kernel.jail.streams import Stop
from sandbox_kernel.limits import DEFAULT_TIMEOUT_S
from sandbox_kernel.model import ExecResult, Language, OnInput, OnOutput
from sandbox_kernel.policy import Mount
from sandbox_kernel.policy.network_rule import parse_rule
from sandbox_kernel.session import code_answers
from sandbox_kernel.session.cell.request import CellEvents, CellExtras, CellRequest, SessionSpec
from sandbox_kernel.session.cell.run_cell import ListenerFailed
from sandbox_kernel.session.session_rights import SessionRights, asked_rights
from sandbox_kernel.session.supervisor import StillBusy, WorkerSupervisor
from sandbox_kernel.session.tree.time_travel import TimeTravel
from sandbox_kernel.session.worker.messages import What
from sandbox_kernel.session.worker.worker import JailedWorker
from sandbox_kernel.workspace.folder_link import FolderLink
from sandbox_kernel.workspace.tree.paths import plain_path
from sandbox_kernel.workspace.tree.walk import DirEntry

if TYPE_CHECKING:
    import asyncio
    from typing import Unpack

    from sandbox_kernel.model import AnyOnInput, OnInput
    from sandbox_kernel.session.debug_link import DebugLink, OnEvent

#: How long a question about code waits for its turn, and how long its answer may take; jedi stops before that.
ASK_S = 5.0


class Session(TimeTravel):
    """One session. Use it as a context manager, or call ``close``; otherwise it ends with its last reference.

    Do not construct it: ``Sandbox.session`` does.
    """

    def __init__(
        self,
        spec: SessionSpec,
        begin: Callable[[], JailedWorker],
        on_close: Callable[[], None] | None = None,
        share: FolderLink | None = None,
        rights: SessionRights | None = None,
    ) -> None:
        self._spec = spec
        self._on_close = on_close
        self._guard = threading.Lock()
        #: The stop signs of what runs now; the last one is the newest.
        self._stops: list[Stop] = []
        self._threads: ThreadPoolExecutor | None = None
        self._supervisor = WorkerSupervisor(spec, begin, share, rights)
        self._finalizer = weakref.finalize(self, self._supervisor.end)
        _sessions.add(self)

    @property
    def name(self) -> str:
        """The session's name. Two sessions may have the same name."""
        return self._spec.name

    @property
    def language(self) -> Language:
        """The language of its cells."""
        return self._spec.language

    @property
    def memory_mb(self) -> int:
        """The memory limit in MB. A cell that was given more has raised it."""
        return self._supervisor.memory_mb

    def usual_memory(self, usual_mb: int) -> int:
        """Return the memory limit of a cell without ``--memory``: ``usual_mb``, or more if an earlier cell had more.

        What that cell made is still there, and the usual limit would refuse every later cell.
        """
        return max(usual_mb, self.memory_mb) if self.memory_mb > self._spec.memory_mb else usual_mb

    def takes_memory(self, memory_mb: int) -> bool:
        """Whether a single cell can have this memory limit: a worker cannot grow far beyond the limit it began with."""
        return self._spec.takes_memory(self.memory_mb, memory_mb)

    @property
    def alive(self) -> bool:
        """Whether the session can run another cell."""
        worker = self._supervisor.live
        return not self._supervisor.closed and worker is not None and worker.jail.alive

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
        **more: Unpack[CellExtras],
    ) -> ExecResult:
        """Run one cell and return its result; waits while another cell runs.

        A failure of the cell is part of the result. Callbacks run on this thread, except ``on_input``.

        Args:
            code: the source of the cell.
            timeout: seconds that the cell may take; after them it is ended and rolled back. Waiting for input does
                not count.
            on_output: called as ``on_output(stream, text)`` with output as it comes; ``stream`` is stdout or stderr.
            on_input: called as ``on_input(prompt, password)`` or ``on_input(prompt)`` when the cell asks for input, on
                a thread of its own; returns the line. Without it ``input()`` raises an error.
            **more: ``on_display``: called with each display as it comes.
                ``on_usage``: called a few times a second with the memory in use and the limit, in bytes.
                ``number``: the notebook's execution count, for tracebacks and ``Out``; None lets the session count.
                ``memory_mb``: memory limit for this cell. If it is above the session's, it becomes the session's limit,
                because what the cell makes stays.
                ``cpu_seconds``: CPU time limit for this cell alone.
                ``output_bytes``: output limit for this cell alone.
                ``front_end``: what a notebook wants beside the result; see ``FrontEnd``.

        Raises:
            InvalidRequest: an argument is wrong; nothing was run.
            SessionError: the session is closed, or a worker could not be started.

        """
        request, events = self._spec.request(code, timeout, **more), CellEvents.of(on_output, on_input, more)
        with host_trouble():
            stop = Stop()
        with contextlib.closing(stop):
            return self._run(request, events, stop)

    def _run(self, request: CellRequest, events: CellEvents, stop: Stop, *, settles: bool = False) -> ExecResult:
        """Run one cell on the calling thread until it ends; ``stop`` interrupts it, before it began too.

        With ``settles``, the caller calls the supervisor's ``make_ready`` when the result has been delivered.
        """
        try:
            # Already while it waits for the turn, and for the worker.
            with host_trouble(), self._stoppable(stop), self._supervisor.turn(stop=stop, settles=settles) as worker:
                # A message to a widget is no step of the history.
                again = None if request.comm is None else worker.tree.present
                return self._supervisor.run(worker, request, events, stop, again, settles=settles)
        except ListenerFailed as error:
            raise error.reason from None

    async def arun(
        self,
        code: str,
        timeout: float = DEFAULT_TIMEOUT_S,
        on_output: OnOutput | None = None,
        on_input: AnyOnInput | None = None,
        *,
        cancel: asyncio.Event | None = None,
        off_loop: bool = False,
        **more: Unpack[CellExtras],
    ) -> ExecResult:
        """Run one cell without blocking the loop. Cancelling the task interrupts the cell and waits for its end.

        Args:
            code: see ``run``.
            timeout: see ``run``.
            on_output: see ``run``; called on this loop, as ``on_display`` is.
            on_input: see ``run``; called on this loop, and may be a coroutine function.
            cancel: an event; setting it interrupts the cell.
            off_loop: call ``on_output`` and ``on_display`` on the thread that runs the cell instead. What they take is
                then time of the cell, and the loop is free for other requests whatever a cell shows.
            **more: see ``run``; ``on_usage`` is called on the thread that runs the cell.

        """
        import asyncio  # slow to import, and ``run`` does not need it

        from sandbox_kernel.backends.async_bridge import LoopBridge, in_thread, on_this_loop

        loop = asyncio.get_running_loop()
        self._supervisor.refuse_if_closed()
        if self._threads is None:
            self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sandbox-session")
        request = self._spec.request(code, timeout, **more)
        events = replace(CellEvents.of(on_output, on_this_loop(on_input), more), loop=loop)

        def work(bridge: LoopBridge) -> ExecResult:
            heard = events
            if not off_loop:
                shown = bridge.on_loop(events.on_display)
                heard = replace(events, on_output=bridge.on_loop(events.on_output), on_display=shown)
            return self._run(request, heard, bridge.stop, settles=True)

        try:
            return await in_thread(work, cancel, self._threads)
        finally:
            # After the caller has shown the result, if it does that without waiting: the checkpoint of this cell.
            threads = self._threads
            loop.call_soon(lambda: None if self._supervisor.closed else threads.submit(self._supervisor.make_ready))

    @property
    def present_state(self) -> tuple[str, int]:
        """The random name of the present worker, and the number of the state that it is in; empty without a worker."""
        worker = self._supervisor.live
        return ("", 0) if worker is None else (worker.worker_id, worker.tree.present)

    def deliver(
        self,
        message: Mapping[str, object],
        timeout: float,
        on_output: OnOutput | None = None,
        **more: Unpack[CellExtras],
    ) -> ExecResult:
        """Hand a message of a page to a widget of this session, as a cell that is no step of the history.

        Call ``keep_state`` when the page has the answer.
        """
        request = self._spec.request("pass", timeout, message, **more)
        with contextlib.closing(Stop()) as stop:
            return self._run(request, CellEvents.of(on_output, None, more), stop, settles=True)

    def keep_state(self) -> None:
        """Make the checkpoint of what ``deliver`` has changed; without this call the next cell waits for it."""
        self._supervisor.make_ready()

    def interrupt(self) -> bool:
        """Interrupt the running cell, as Ctrl-C does; if it does not end soon, kill it and roll back.

        May be called from any thread. Returns False when no cell runs.
        """
        with self._guard:
            if not self._stops:
                return False
            self._stops[0].set()
            return True

    def allow(
        self,
        *,
        domain: str | None = None,
        mount: str | Mount | None = None,
        env: Mapping[str, str] | None = None,
        memory_mb: int | None = None,
    ) -> None:
        """Give the running session more; its variables stay. Waits for a running cell.

        Args:
            domain: A domain that its programs may reach, ``example.org`` or ``example.org:8443``.
            mount: A folder that it is shown, as ``HOST:GUEST``, at a place of ``jail/late_grants.py``: read-only, or
                ``HOST:GUEST:rw`` for a session that began with a folder of the host.
            env: Variables of its environment.
            memory_mb: A higher memory limit.

        Raises:
            PolicyViolation: A running session cannot be given this; the message says what works instead.

        """
        asked = asked_rights(domain, mount, env, memory_mb)
        with host_trouble(), self._supervisor.turn() as worker:
            self._rights().allow(self._supervisor, worker, asked)

    def revoke(
        self,
        *,
        domain: str | None = None,
        mount: str | Mount | None = None,
        env: Iterable[str] | None = None,
    ) -> None:
        """Take back what ``allow`` has given. Waits for a running cell; connections to a domain end at once.

        Args:
            domain: The domain, as it was given.
            mount: The folder, as it was given.
            env: Names of variables.

        Raises:
            PolicyViolation: It was not given, or something in the session still uses it; the message says what to do.

        """
        asked = asked_rights(domain, mount, dict.fromkeys(env or (), ""), None)
        rights = self._rights()
        with host_trouble():
            self._supervisor.refuse_if_closed()
            if asked.rule is not None:
                # The host alone carries it: it ends also where the worker has ended itself.
                with self._supervisor.lock():
                    rights.end_domain(self._supervisor.live, asked.rule)
            if asked.mount is not None or asked.env:
                with self._supervisor.turn() as worker:
                    rights.revoke(self._supervisor, worker, asked)

    def reaches(self, domain: str) -> bool:
        """Whether the session may reach a domain, by what it began with and what it was given since."""
        rights = self._supervisor.rights
        return rights is not None and (rights.policy.network or parse_rule(domain) in rights.policy.network_rules)

    def _rights(self) -> SessionRights:
        if self._supervisor.rights is None:
            raise PolicyViolation(
                "a WebAssembly session has what it began with; open a new one with the right, or save this one and "
                "load it in a sandbox that has it: session.save(path), Sandbox(policy).load_session(path)"
            )
        return self._supervisor.rights

    def read_file(self, path: str | os.PathLike[str]) -> bytes:
        """Return the content of a file, given relative to the work folder; waits for a running cell."""
        with self._supervisor.turn() as worker:
            return self._supervisor.files.read(worker, plain_path(path))

    def write_file(self, path: str | os.PathLike[str], data: bytes | str) -> None:
        """Create or replace a file of the work folder; waits for a running cell. Text is written as UTF-8.

        A later rollback keeps the file.
        """
        with self._supervisor.turn() as worker:
            self._supervisor.files.write(worker, plain_path(path), data)

    def keep_large_files(self, place: str) -> None:
        """Keep files that are too large to be shared for a later session, in a folder that no other user can change.

        Called before the first cell: files that are there are put into the work folder.
        """
        self._supervisor.files.keep_large(place)

    def clear_files(self) -> None:
        """Remove all files of the work folder; waits for a running cell. Undo brings them back.

        Raises:
            InvalidRequest: The session works on a folder of the host; ``box.discard`` drops what was changed in it.

        """
        with self._supervisor.turn() as worker:
            self._supervisor.files.clear(worker)

    def list_dir(self, path: str | os.PathLike[str] = ".") -> tuple[DirEntry, ...]:
        """Return the entries of a folder of the work folder, sorted by name; waits for a running cell."""
        with self._supervisor.turn() as worker:
            return self._supervisor.files.list_dir(worker, plain_path(path))

    def restart(self) -> None:
        """Start a new worker without variables and checkpoints; ends a running cell. Shared files of the box stay."""
        self._supervisor.refuse_if_closed()
        with self._supervisor.lock_after_kill():
            self._supervisor.again(forget=True)

    def complete(self, code: str, pos: int) -> Mapping[str, object]:
        """Return completions at a position, in Jupyter's form.

        The keys are ``matches``, ``cursor_start``, ``cursor_end`` and ``metadata``. Waits a few seconds for a running
        cell, then it returns none.
        """
        return code_answers.completions(self._ask("complete", code, pos), code, pos)

    def inspect(self, code: str, pos: int, detail: int = 0) -> Mapping[str, object]:
        """Return documentation of the name at a position as a MIME bundle; empty when it is unknown.

        ``detail=1`` adds the source code, where the session has it: Python sessions of processes do. Waits a few
        seconds for a running cell, then it returns nothing.
        """
        in_ipython = self.language is Language.PYTHON and self._spec.backend == "process"
        return code_answers.documentation(self._ask("source" if detail and in_ipython else "inspect", code, pos))

    def is_complete(self, code: str) -> Mapping[str, object]:
        """Return the ``status`` of code, complete, incomplete, invalid or unknown, and the next line's ``indent``."""
        return code_answers.completeness(self._ask("is_complete", code, 0))

    def attach_debugger(self, on_event: OnEvent) -> DebugLink:
        """Start a debugger in this session, for a page; waits a few seconds for a running cell.

        It ends with the returned link, with the session, and with a rollback. ``on_event`` is called with each event of
        the debugger, on a thread of the link. Raises ``SessionError`` when the session runs a cell, has another
        language, or its Python has no debugpy.
        """
        if self.language is not Language.PYTHON or self._spec.backend != "process":
            raise SessionError(f"only Python sessions of processes have a debugger, not {self.language} in WebAssembly")
        with host_trouble(), self._supervisor.turn(ASK_S) as worker:
            return worker.attach_debugger(on_event)

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
            self._stops.append(stop)
        try:
            yield
        finally:
            with self._guard:
                self._stops.remove(stop)

    def _ask(self, what: What, code: str, pos: int) -> Mapping[str, object]:
        if not code_answers.worth_asking(code, pos):
            return {}
        try:
            with host_trouble(), self._supervisor.turn(ASK_S) as worker:
                try:
                    return worker.ask(what, code, min(max(0, pos), len(code)), ASK_S).answer
                except SessionError:
                    self._supervisor.revive(worker)
                    return {}
        except StillBusy:
            # A cell runs for longer: the worker cannot answer now, and an editor must not wait for ever.
            return {}


_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


def _forget_all() -> None:
    """Close the descriptors and end nothing: in a forked child the sessions belong to the parent."""
    for session in list(_sessions):
        session._finalizer.detach()
        session._supervisor.forget()


os.register_at_fork(after_in_child=_forget_all)


@contextlib.asynccontextmanager
async def reaching(session: Session, domains: Iterable[str]) -> AsyncIterator[None]:
    """Let a session reach these domains meanwhile; what it has already, it keeps.

    Raises ``PolicyViolation`` before anything runs when a running session cannot be given a domain. At the end all its
    connections to these domains are closed, those of processes that the cell leaves too.
    """
    import asyncio  # slow to import, and not every program has a loop

    given: list[str] = []
    try:
        for domain in domains:
            if not session.reaches(domain):
                await asyncio.to_thread(session.allow, domain=domain)
                given.append(domain)
        yield
    finally:
        for domain in given:
            with contextlib.suppress(SessionError):  # it was closed: nothing is left that could reach anything
                await asyncio.to_thread(session.revoke, domain=domain)
