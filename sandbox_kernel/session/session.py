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
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, TypedDict, Unpack

from sandbox_kernel.backends.checks import host_trouble
from sandbox_kernel.errors import InvalidRequest, PolicyViolation, SessionError
from sandbox_kernel.jail.streams import ListenerFailed, Stop
from sandbox_kernel.limits import DEFAULT_TIMEOUT_S, MAX_READ_BYTES
from sandbox_kernel.model import AnyOnInput, ExecResult, Language, OnInput, OnOutput, OnUsage
from sandbox_kernel.policy import Mount
from sandbox_kernel.policy.network_rule import parse_rule
from sandbox_kernel.session import code_answers
from sandbox_kernel.session.cell.displays import OnDisplay
from sandbox_kernel.session.cell.front_end import FrontEnd
from sandbox_kernel.session.cell.request import CellEvents, CellRequest
from sandbox_kernel.session.debug_link import DebugLink, OnEvent
from sandbox_kernel.session.session_rights import SessionRights, asked_rights
from sandbox_kernel.session.supervisor import StillBusy, WorkerSupervisor
from sandbox_kernel.session.tree.time_travel import TimeTravel
from sandbox_kernel.session.worker.jailed_worker import StoppedEarly
from sandbox_kernel.session.worker.messages import What
from sandbox_kernel.workspace.tree.paths import plain_path
from sandbox_kernel.workspace.tree.rooted import encoded
from sandbox_kernel.workspace.tree.walk import DirEntry

if TYPE_CHECKING:
    import asyncio

#: How long a question about code waits for its turn, and how long its answer may take; jedi stops before that.
ASK_S = 5.0


class CellExtras(TypedDict, total=False):
    """The parameters of a cell that are given by name only; ``Session.run`` documents them."""

    on_display: OnDisplay | None
    on_usage: OnUsage | None
    number: int | None
    memory_mb: int | None
    cpu_seconds: float | None
    output_bytes: int | None
    front_end: FrontEnd | None


class Session(TimeTravel):
    """One session, of ``Sandbox.session``. ``close`` it, or it ends with its ``with`` block or last reference."""

    def __init__(self, supervisor: WorkerSupervisor) -> None:
        self._supervisor, self._spec = supervisor, supervisor.spec
        #: Makes a request for ``perform``.
        self.request = self._spec.request
        self._guard = threading.Lock()
        #: The stop signs of what runs now; the last one is the newest.
        self._stops: list[Stop] = []
        #: Of ``perform``: one for cells, in their order, and one that keeps their states.
        self._threads: tuple[ThreadPoolExecutor, ...] | None = None
        self._finalizer = weakref.finalize(self, supervisor.end)
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
        """Return the limit of a cell without ``--memory``: the usual one, or what an earlier cell raised it to."""
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

    def __exit__(self, *_: object) -> None:
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
        request, events = self._cell(code, timeout, on_output, on_input, more)
        with host_trouble():
            stop = Stop()
        with contextlib.closing(stop):
            return self._run(request, events, stop)

    def _run(self, request: CellRequest, events: CellEvents, stop: Stop, *, settles: bool = False) -> ExecResult:
        """Run one cell until it ends or ``stop``. With ``settles``, the caller then calls ``make_ready``."""
        try:
            # Already while it waits for the turn, and for the worker.
            with host_trouble(), self._stoppable(stop), self._supervisor.turn(stop=stop, settles=settles) as worker:
                # A message to a widget is no step of the history.
                again = None if request.comm is None else worker.tree.present
                return self._supervisor.run(worker, request, events, stop, again, settles=settles)
        except StoppedEarly:
            return self._supervisor.not_begun(request)
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
        **more: Unpack[CellExtras],
    ) -> ExecResult:
        """Run one cell like ``run``, without blocking the loop. Setting ``cancel`` interrupts the cell.

        Cancelling the task interrupts it too, and waits for its end. Callbacks are called on this loop, ``on_usage`` on
        the thread of the cell; ``on_input`` may be a coroutine function.
        """
        from sandbox_kernel.backends.async_bridge import on_this_loop  # it needs asyncio, and ``run`` does not

        request, events = self._cell(code, timeout, on_output, on_this_loop(on_input), more)
        return await self.perform(request, events, cancel, on_loop=True)

    def _cell(
        self, code: str, timeout: float, on_output: OnOutput | None, on_input: OnInput | None, more: CellExtras
    ) -> tuple[CellRequest, CellEvents]:
        """Return what was asked for, and those parameters that are called."""
        heard = {name: more.pop(name, None) for name in ("on_display", "on_usage", "front_end")}  # type: ignore[misc]
        events = CellEvents(on_output=on_output, on_input=on_input, **heard)
        return self.request(code, timeout, **more), events  # type: ignore[misc]

    async def perform(
        self, request: CellRequest, events: CellEvents, cancel: asyncio.Event | None, *, on_loop: bool = False
    ) -> ExecResult:
        """Run one cell without blocking the loop, like ``arun``. Callbacks are called on threads of the cell.

        What they take is time of the cell, and the loop is free for other requests whatever a cell shows. ``on_loop``:
        call ``on_output`` and ``on_display`` on this loop instead.
        """
        import asyncio  # slow to import, and ``run`` does not need it

        from sandbox_kernel.backends.async_bridge import LoopBridge, in_thread

        loop = asyncio.get_running_loop()
        self._supervisor.refuse_if_closed()
        if self._threads is None:
            self._threads = tuple(ThreadPoolExecutor(1, thread_name_prefix="sandbox-session") for _ in range(2))
        # Apart: a cell that waits until the state before it is kept hears that it is stopped.
        cells, keeper = self._threads

        def work(bridge: LoopBridge) -> ExecResult:
            heard = events
            if on_loop:
                shown = bridge.on_loop(events.on_display)
                heard = replace(events, loop=loop, on_output=bridge.on_loop(events.on_output), on_display=shown)
            return self._run(request, heard, bridge.stop, settles=True)

        try:
            return await in_thread(work, cancel, cells)
        finally:
            # After the caller has shown the result, if it does that without waiting: the checkpoint of this cell.
            loop.call_soon(lambda: None if self._supervisor.closed else keeper.submit(self._supervisor.make_ready))

    @property
    def present_state(self) -> tuple[str, int]:
        """The random name of the present worker, and the number of the state that it is in; empty without a worker."""
        worker = self._supervisor.live
        return ("", 0) if worker is None else (worker.worker_id, worker.tree.present)

    def deliver(
        self,
        message: Mapping[str, object],
        timeout: float,
        stop: Stop,
        on_output: OnOutput | None = None,
        on_display: OnDisplay | None = None,
    ) -> ExecResult:
        """Hand a page's message to a widget, as a cell that is no step of the history; then call ``keep_state``."""
        request, events = self.request("pass", timeout, message), CellEvents(on_output=on_output, on_display=on_display)
        return self._run(request, events, stop, settles=True)

    def keep_state(self) -> None:
        """Make the checkpoint of what ``deliver`` has changed; without this call the next cell waits for it."""
        self._supervisor.make_ready()

    def interrupt(self) -> bool:
        """Interrupt the running cell from any thread, as Ctrl-C does, and kill it if it goes on; False without one."""
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
        self, *, domain: str | None = None, mount: str | Mount | None = None, env: Iterable[str] | None = None
    ) -> None:
        """Take back what ``allow`` has given; ``env`` are names. Connections to a domain end at once.

        Waits for a running cell. Raises ``PolicyViolation``, which says what to do, for what was not given or is still
        used.
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

    def read_file(self, path: str | os.PathLike[str], *, max_bytes: int = MAX_READ_BYTES) -> bytes:
        """Return the content of a file below the work folder; waits for a running cell. A larger one is refused."""
        with self._supervisor.turn() as worker:
            return self._supervisor.files.brought(worker).read(plain_path(path), max_bytes)

    def write_file(self, path: str | os.PathLike[str], data: bytes | str) -> None:
        """Create or replace a file of the work folder, which a rollback keeps; waits for a running cell."""
        with self._supervisor.turn() as worker, self._supervisor.files.changing(worker) as box:
            box.write(plain_path(path), encoded(plain_path(path), data))

    def keep_large_files(self, place: str) -> None:
        """Keep files that are too large to be shared in a private folder, and put in those that are there."""
        self._supervisor.files.keep_large(place)

    def clear_files(self) -> None:
        """Remove all files of the work folder; undo brings them back. ``InvalidRequest`` for a folder of the host."""
        with self._supervisor.turn() as worker:
            if self._supervisor.files.here(worker):
                raise InvalidRequest(
                    "the session works on a folder of yours, which is not emptied; discard drops its changes"
                )
            with self._supervisor.files.changing(worker) as box:
                box.clear()

    def list_dir(self, path: str | os.PathLike[str] = ".") -> tuple[DirEntry, ...]:
        """Return the entries of a folder of the work folder, sorted by name; waits for a running cell."""
        with self._supervisor.turn() as worker:
            return self._supervisor.files.brought(worker).list_dir(plain_path(path))

    def restart(self) -> None:
        """Start a new worker without variables and checkpoints; ends a running cell. Shared files of the box stay."""
        self._supervisor.refuse_if_closed()
        with self._supervisor.lock_after_kill():
            self._supervisor.again(forget=True)

    def complete(self, code: str, pos: int) -> Mapping[str, object]:
        """Return completions at a position, in Jupyter's form; none where a running cell goes on for seconds."""
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
        for threads in self._threads or ():
            threads.shutdown(wait=False)

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
            with host_trouble(), self._supervisor.turn(ASK_S, tells=False) as worker:
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
