"""Run a session's blocking ``run`` as a coroutine: callbacks run on the caller's loop, in order, none after its end."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor

from sandbox_kernel.backends.base import OnOutput
from sandbox_kernel.model import ExecResult
from sandbox_kernel.session.cell.cell_prompt import OnInput, takes_prompt_alone
from sandbox_kernel.session.cell.displays import OnDisplay, SessionDisplay

AnyOnInput = Callable[[str, bool], str | Awaitable[str]]
Work = Callable[[OnOutput | None, OnDisplay | None, OnInput | None], ExecResult]


async def run_in_thread(
    executor: Executor,
    work: Work,
    interrupt: Callable[[], object],
    *,
    on_output: OnOutput | None,
    on_display: OnDisplay | None,
    on_input: AnyOnInput | None,
    cancel: asyncio.Event | None,
) -> ExecResult:
    """Run ``work`` on a thread of the executor and wait for its result.

    Args:
        executor: provides the thread.
        work: the blocking call; gets the callbacks that pass calls on to the loop.
        interrupt: called to end ``work`` early: after ``cancel``, a cancelled task or a callback that raised.
        on_output: called on the loop with each piece of output.
        on_display: called on the loop with each display.
        on_input: called on the loop for each prompt; may be a coroutine function.
        cancel: an event that interrupts the work when it is set.

    """
    bridge = _Bridge(asyncio.get_running_loop(), interrupt, on_output, on_display, on_input)
    future = bridge.loop.run_in_executor(executor, bridge.run, work)
    watcher = asyncio.ensure_future(bridge.stop_when(cancel)) if cancel is not None else None
    try:
        result = await asyncio.shield(future)
    except asyncio.CancelledError:
        bridge.stop()
        with contextlib.suppress(BaseException):
            await future
        raise
    finally:
        if watcher is not None:
            watcher.cancel()
    if bridge.failure is not None:
        raise bridge.failure
    return result


class _Bridge:
    """Passes callbacks from the working thread to the loop. A callback that raises interrupts the cell."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        interrupt: Callable[[], object],
        on_output: OnOutput | None,
        on_display: OnDisplay | None,
        on_input: AnyOnInput | None,
    ) -> None:
        self.loop = loop
        self.failure: BaseException | None = None
        self._interrupt = interrupt
        self._on_output, self._on_display, self._on_input = on_output, on_display, on_input
        self._begun = False
        self._stopped = False
        self._lock = threading.Lock()

    def run(self, work: Work) -> ExecResult:
        """Call ``work``; runs on the working thread."""
        with self._lock:
            if self._stopped:
                # The task was cancelled while it waited for the thread: nothing has run.
                raise asyncio.CancelledError
            self._begun = True
        return work(
            self._say if self._on_output is not None else None,
            self._show if self._on_display is not None else None,
            self._ask if self._on_input is not None else None,
        )

    def stop(self) -> None:
        """Interrupt the work, or keep it from beginning; called on the loop."""
        with self._lock:
            self._stopped = True
            begun = self._begun
        if begun:
            self._interrupt()

    async def stop_when(self, cancel: asyncio.Event) -> None:
        """Wait for ``cancel``, then interrupt the work; runs on the loop as a task."""
        await cancel.wait()
        self._interrupt()

    def _say(self, stream: str, text: str) -> None:
        self.loop.call_soon_threadsafe(self._call, lambda: self._on_output and self._on_output(stream, text))

    def _show(self, display: SessionDisplay) -> None:
        self.loop.call_soon_threadsafe(self._call, lambda: self._on_display and self._on_display(display))

    def _ask(self, prompt: str, password: bool) -> str:
        return asyncio.run_coroutine_threadsafe(self._answer(prompt, password), self.loop).result()

    async def _answer(self, prompt: str, password: bool) -> str:
        assert self._on_input is not None
        arguments = (prompt,) if takes_prompt_alone(self._on_input) else (prompt, password)
        found: str | Awaitable[str] = self._on_input(*arguments)
        return await found if inspect.isawaitable(found) else found

    def _call(self, callback: Callable[[], object]) -> None:
        if self.failure is None:
            try:
                callback()
            except BaseException as error:
                self.failure = error
                self._interrupt()
