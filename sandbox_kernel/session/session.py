"""State between cells: what ``box.session(...)`` gives.

Every cell is a transaction. One that ends by itself, well or with an exception, is kept. One that times out, exceeds
its memory, crashes or has to be stopped hard leaves its output, and the session is as it was before it. One cell runs
at a time; a second caller waits for its turn. ``interrupt`` and ``close`` may be called from any thread meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from types import TracebackType

from sandbox_kernel.backends.base import OnOutput
from sandbox_kernel.errors import InvalidRequest, SessionError
from sandbox_kernel.jail.job import Stop
from sandbox_kernel.limits import Limits
from sandbox_kernel.model import ExecRequest, ExecResult, Language
from sandbox_kernel.session.cell import Cell, CellEnd, CellOrder, OnInput
from sandbox_kernel.session.checkpoints import Checkpoint
from sandbox_kernel.session.displays import OnDisplay, SessionDisplay
from sandbox_kernel.session.frames import What
from sandbox_kernel.session.keeper import GateLost
from sandbox_kernel.session.live import Comeback, Live
from sandbox_kernel.session.memory import private_bytes
from sandbox_kernel.session.result import Facts, Frame, comeback_notes, loss_notes, make_result, reason

#: How long a cell may go on after an interrupt before it is rolled back.
GRACE_S = 2.0
#: How long a question about code may take; jedi gives up earlier by itself.
ASK_S = 5.0

AnyOnInput = Callable[[str, bool], str | Awaitable[str]]


@dataclass(frozen=True, kw_only=True)
class SessionSpec:
    """What a session was asked to be; the same for all its lives."""

    name: str
    language: Language
    memory_mb: int
    checkpoints: int
    limits: Limits
    frame: Frame
    grace_s: float = GRACE_S


class _Place:
    """Holds the present life of a session, so that garbage collection can end it without the session."""

    def __init__(self) -> None:
        self.live: Live | None = None

    def end(self) -> None:
        live, self.live = self.live, None
        if live is not None:
            live.destroy()


class Session:
    """One session. Use it as a context manager, or call ``close``; a forgotten one ends with its last reference."""

    def __init__(
        self, spec: SessionSpec, begin: Callable[[], Live], on_close: Callable[[], None] | None = None
    ) -> None:
        self._spec = spec
        self._begin = begin
        self._on_close = on_close
        self._turn = threading.Lock()
        self._turn_of: int | None = None
        self._guard = threading.Lock()
        self._stop: Stop | None = None
        self._closed = False
        self._threads: ThreadPoolExecutor | None = None
        self._place = _Place()
        self._finalizer = weakref.finalize(self, self._place.end)
        self._place.live = begin()
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
        """Its memory limit."""
        return self._spec.memory_mb

    @property
    def alive(self) -> bool:
        """Whether the session can run another cell."""
        live = self._place.live
        return not self._closed and live is not None and live.jail.alive

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(
        self,
        code: str,
        timeout: float = 30.0,
        on_output: OnOutput | None = None,
        on_input: OnInput | None = None,
        *,
        on_display: OnDisplay | None = None,
        number: int | None = None,
    ) -> ExecResult:
        """Run one cell. Callbacks are called on this thread, ``on_input`` on one of its own.

        ``number`` is the notebook's execution count, for tracebacks and ``Out``; the session counts by itself else.
        """
        request = ExecRequest(
            language=self.language, code=code, timeout=timeout, memory_limit_mb=self.memory_mb, limits=self._spec.limits
        )
        order = CellOrder(
            code=code,
            number=number,
            timeout_s=request.timeout,
            grace_s=self._spec.grace_s,
            output_bytes=self._spec.limits.output_bytes,
            on_output=on_output,
            on_display=on_display,
            on_input=on_input,
        )
        with self._my_turn() as live:
            return self._run(live, order)

    async def arun(
        self,
        code: str,
        timeout: float = 30.0,
        on_output: OnOutput | None = None,
        on_input: AnyOnInput | None = None,
        *,
        on_display: OnDisplay | None = None,
        number: int | None = None,
        cancel: asyncio.Event | None = None,
    ) -> ExecResult:
        """The same, asynchronously: callbacks are called on this loop, and ``on_input`` may be a coroutine function.

        Setting ``cancel`` interrupts the cell; cancelling the task does too, and waits until the cell has ended.
        """
        loop = asyncio.get_running_loop()
        begun = threading.Event()
        given_up = threading.Event()

        def say(stream: str, text: str) -> None:
            loop.call_soon_threadsafe(_call, on_output, stream, text)

        def show(display: SessionDisplay) -> None:
            loop.call_soon_threadsafe(_call, on_display, display)

        def ask(prompt: str, password: bool) -> str:
            assert on_input is not None
            return asyncio.run_coroutine_threadsafe(_answer(on_input, prompt, password), loop).result()

        def work() -> ExecResult:
            if given_up.is_set():
                raise asyncio.CancelledError
            begun.set()
            return self.run(
                code,
                timeout,
                say if on_output is not None else None,
                ask if on_input is not None else None,
                on_display=show if on_display is not None else None,
                number=number,
            )

        future = loop.run_in_executor(self._thread(), work)
        watcher = asyncio.ensure_future(self._interrupt_when(cancel)) if cancel is not None else None
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            given_up.set()
            if begun.is_set():
                self.interrupt()
            with contextlib.suppress(BaseException):
                await future
            raise
        finally:
            if watcher is not None:
                watcher.cancel()

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
        with self._my_turn() as live:
            target = live.shelf.before(n, live.cell)
            try:
                back = live.go_back(target)
            except (GateLost, SessionError) as error:
                self._begin_again()
                raise SessionError(f"undo failed and the session's state is lost: {error}; it was restarted") from None
            if back is None:
                self._after_death(live, "")
                raise SessionError(f"the checkpoint {n} cells back is gone; the session went on from another one")
            word = "cell" if n == 1 else "cells"
            kept = f"{back.names} variable{'' if back.names == 1 else 's'} kept"
            notes = [f"the last {n} {word} taken back; {kept}", *loss_notes(back)]
            frame = self._spec.frame
            return ExecResult(
                language=frame.language, backend=frame.backend, isolation=frame.isolation, rolled_back=True,
                memory_limit_mb=frame.memory_mb, notes=tuple(notes),
            )  # fmt: skip

    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """The states that ``undo`` can go back to, nearest first, with the memory that each alone holds."""
        with self._my_turn() as live:
            held = private_bytes(live.jail.init_pid)
            return tuple(replace(item, memory_bytes=held.get(item.pid)) for item in live.shelf.reachable(live.cell))

    def restart(self) -> None:
        """Begin again with nothing: no variables, no files, no checkpoints."""
        if self._closed:
            raise self._is_closed()
        self._kill()
        with self._lock():
            self._begin_again()

    def complete(self, code: str, pos: int) -> Mapping[str, object]:
        """What could stand at ``pos``: ``matches``, ``cursor_start``, ``cursor_end``, ``metadata``."""
        answer = self._ask("complete", code, pos)
        matches = answer.get("matches")
        if not isinstance(matches, list) or not all(isinstance(item, str) for item in matches):
            return {"matches": [], "cursor_start": pos, "cursor_end": pos, "metadata": {}}
        places = {key: answer.get(key) for key in ("cursor_start", "cursor_end")}
        metadata = answer.get("metadata")
        return {
            "matches": matches,
            **{
                key: place if isinstance(place, int) and 0 <= place <= len(code) else pos
                for key, place in places.items()
            },
            "metadata": metadata if isinstance(metadata, dict) else {},
        }

    def inspect(self, code: str, pos: int) -> Mapping[str, object]:
        """What stands at ``pos``, as a MIME bundle; empty when unknown."""
        data = self._ask("inspect", code, pos).get("data")
        if not isinstance(data, dict):
            return {}
        return {str(mime): text for mime, text in data.items() if isinstance(text, str)}

    def is_complete(self, code: str) -> Mapping[str, object]:
        """``status`` is complete, incomplete, invalid or unknown; ``indent`` is for the next line."""
        answer = self._ask("is_complete", code, 0)
        status, indent = answer.get("status"), answer.get("indent")
        known = status in ("complete", "incomplete", "invalid")
        return {
            "status": status if known else "unknown",
            "indent": indent if isinstance(indent, str) and len(indent) < 1000 else "",
        }

    def close(self) -> None:
        """End the session and everything in it, a running cell included. May be called twice."""
        with self._guard:
            if self._closed:
                return
            self._closed = True
        self._kill()
        with self._lock():
            self._place.end()
        self._finalizer.detach()
        if self._threads is not None:
            self._threads.shutdown(wait=False)
        if self._on_close is not None:
            self._on_close()

    # -- what happens within a turn ------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        if self._turn_of == threading.get_ident():
            raise SessionError(
                f"session {self.name!r} is running a cell on this very thread; wait for its result before the next call"
            )
        with self._turn:
            self._turn_of = threading.get_ident()
            try:
                yield
            finally:
                self._turn_of = None

    @contextlib.contextmanager
    def _my_turn(self) -> Iterator[Live]:
        """A worker that waits; what is not there any more is restored or, where it cannot be, said so."""
        if self._closed:
            raise self._is_closed()
        with self._lock():
            live = self._place.live
            if self._closed or live is None:
                raise self._is_closed()
            try:
                live.prepare()
                if live.keeper.gone is not None and live.recover() is None:
                    raise GateLost
                live.prepare()
            except (GateLost, SessionError) as error:
                if self._closed:
                    raise self._is_closed() from None
                self._begin_again()
                raise SessionError(
                    f"session {self.name!r} was ended between cells ({error or 'its sandbox is gone'}) and its state "
                    "is lost; it was started anew, run the cells that you need again"
                ) from None
            yield live

    def _run(self, live: Live, order: CellOrder) -> ExecResult:
        meter = live.jail.meter
        before = meter.read()
        kills = meter.oom_kills()
        with self._stoppable() as stop:
            cell = Cell(live, order, stop)
            end = cell.watch()
        notes: list[str] = []
        back: Comeback | None = None
        if end.how == "done":
            self._commit(live)
        else:
            back, notes = self._roll_back(live, end)
        cell.settle()
        after = meter.read()
        facts = Facts(
            stdout=cell.stdout,
            stderr=cell.stderr,
            displays=cell.displays.all(),
            dropped_displays=cell.displays.dropped,
            oom_kills=meter.oom_kills() - kills,
            forks_refused=after.forks_refused and not before.forks_refused,
            cpu_seconds=_difference(after.cpu_seconds, before.cpu_seconds),
            peak_bytes=after.peak_bytes,
        )
        if end.how == "lost" or (back is None and end.how != "done"):
            self._begin_again()
        if end.failure is not None:
            raise end.failure
        return make_result(
            end, facts, self._spec.frame, timeout=order.timeout_s, rolled_back=back is not None, notes=notes
        )

    def _commit(self, live: Live) -> None:
        try:
            live.commit()
        except GateLost:
            # The next turn notices and says so; this cell has its result.
            return

    def _roll_back(self, live: Live, end: CellEnd) -> tuple[Comeback | None, list[str]]:
        """Let the newest checkpoint take over; where there is none, say that the state is lost."""
        why = [reason(end)] if reason(end) else []
        before = live.cell
        lost = "its sandbox was ended"
        if end.how != "lost" and not self._closed:
            lost = live.unfrozen or "no checkpoint was left"
            try:
                live.end_worker()
                back = live.recover(strict=end.how == "protocol")
                if back is not None:
                    return back, [*why, *comeback_notes(back, before - back.cell)]
            except (GateLost, SessionError) as error:
                lost = str(error) or "its sandbox was ended"
        return None, [*why, f"the session's state is lost: {lost}; a new session was started"]

    def _after_death(self, live: Live, why: str) -> None:
        try:
            if live.recover() is None:
                self._begin_again()
        except (GateLost, SessionError):
            self._begin_again()

    def _begin_again(self) -> None:
        self._place.end()
        if not self._closed:
            self._place.live = self._begin()

    @contextlib.contextmanager
    def _stoppable(self) -> Iterator[Stop]:
        stop = Stop()
        with self._guard:
            self._stop = stop
        try:
            yield stop
        finally:
            with self._guard:
                self._stop = None
                stop.close()

    def _ask(self, what: What, code: str, pos: int) -> Mapping[str, object]:
        if not isinstance(code, str) or isinstance(pos, bool) or not isinstance(pos, int):
            raise InvalidRequest(f"a question about code takes the code and a position, got {code!r:.60} and {pos!r}")
        if self._turn.locked():
            # A cell runs: its worker cannot answer, and nobody should wait for it.
            return {}
        with self._my_turn() as live:
            try:
                return live.ask(what, code, min(max(0, pos), len(code)), ASK_S).answer
            except SessionError:
                self._after_death(live, "")
                return {}

    def _kill(self) -> None:
        """End the jail under a running cell, so that its turn ends."""
        live = self._place.live
        if live is not None:
            live.jail.kill()

    def _thread(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sandbox-session")
        return self._threads

    async def _interrupt_when(self, cancel: asyncio.Event) -> None:
        await cancel.wait()
        self.interrupt()

    def _is_closed(self) -> SessionError:
        return SessionError(f"session {self.name!r} is closed; open a new one with box.session({str(self.language)!r})")

    def _forget(self) -> None:
        """In a forked child the session is the parent's: let go of its descriptors, end nothing."""
        self._finalizer.detach()
        self._closed = True
        live, self._place.live = self._place.live, None
        if live is not None:
            live.jail.forget()


def _call(callback: Callable[..., None] | None, *arguments: object) -> None:
    if callback is not None:
        callback(*arguments)


async def _answer(on_input: AnyOnInput, prompt: str, password: bool) -> str:
    found = on_input(prompt, password)
    return await found if inspect.isawaitable(found) else found


def _difference(after: float | None, before: float | None) -> float | None:
    return None if after is None else max(0.0, after - (before or 0.0))


_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


def _forget_all() -> None:
    for session in list(_sessions):
        session._forget()


os.register_at_fork(after_in_child=_forget_all)
