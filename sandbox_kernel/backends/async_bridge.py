"""The one bridge between blocking work and a caller with an event loop, for runs and for cells of sessions.

Apart from ``base.py`` because it needs asyncio, whose import takes longer than a run.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import ParamSpec

from sandbox_kernel.backends.checks import host_trouble
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.jail.input_prompts import takes_prompt_alone
from sandbox_kernel.jail.streams import Stop
from sandbox_kernel.limits import quoted
from sandbox_kernel.model import AnyOnInput, ExecResult, OnInput, check_listener

Given = ParamSpec("Given")


@functools.lru_cache(maxsize=1)
def _threads() -> ThreadPoolExecutor:
    """Return the threads for runs. A run that waits for a thread has not started its deadline."""
    return ThreadPoolExecutor(max_workers=max(8, 4 * (os.cpu_count() or 2)), thread_name_prefix="sandbox-run")


os.register_at_fork(after_in_child=_threads.cache_clear)


class LoopBridge:
    """What blocking work needs of its caller: callbacks on the caller's loop, and a stop sign to watch."""

    def __init__(self) -> None:
        self.stop = Stop()
        #: The first exception that a callback raised; no callback is called after it.
        self.failure: BaseException | None = None
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._begun = False
        self._cancelled = False

    def on_loop(self, callback: Callable[Given, object] | None) -> Callable[Given, None] | None:
        """The same callback for the working thread: it is called on the loop. If it raises, the work is stopped."""
        if callback is None:
            return None

        def call(*given: Given.args, **named: Given.kwargs) -> None:
            try:
                if self.failure is None:
                    callback(*given, **named)
            except BaseException as error:
                # The caller's own callback failed: nothing reads the output any more.
                self.failure = error
                self.stop.set()

        def emit(*given: Given.args, **named: Given.kwargs) -> None:
            self._loop.call_soon_threadsafe(functools.partial(call, *given, **named))

        return emit

    def run(self, work: Callable[[LoopBridge], ExecResult]) -> ExecResult:
        """Do the work; called on the working thread. Work whose caller was cancelled before it began does not run."""
        # The thread closes the stop sign: a caller that is cancelled twice leaves while the thread still watches it.
        with contextlib.closing(self.stop):
            with self._lock:
                if self._cancelled:
                    raise asyncio.CancelledError
                self._begun = True
            return work(self)

    def cancel(self) -> None:
        """The caller was cancelled: the work ends early, or does not begin."""
        with self._lock:
            self._cancelled = not self._begun
        self.stop.set()


async def in_thread(
    work: Callable[[LoopBridge], ExecResult], cancel: asyncio.Event | None, executor: Executor | None = None
) -> ExecResult:
    """Run blocking work in a thread and wait. ``cancel``, as cancelling the task, stops it and waits for its end."""
    # A threading event would block the loop.
    if cancel is not None and not isinstance(cancel, asyncio.Event):
        raise InvalidRequest(f"cancel must be an asyncio.Event, got {quoted(cancel)}")
    with host_trouble():
        bridge = LoopBridge()
    done = asyncio.get_running_loop().run_in_executor(executor or _threads(), bridge.run, work)

    async def stop_when_cancelled(event: asyncio.Event) -> None:
        await event.wait()
        bridge.stop.set()

    watcher = asyncio.ensure_future(stop_when_cancelled(cancel)) if cancel is not None else None
    try:
        result = await asyncio.shield(done)
    except asyncio.CancelledError:
        bridge.cancel()
        with contextlib.suppress(BaseException):
            await done
        raise
    finally:
        if watcher is not None:
            watcher.cancel()
    if bridge.failure is not None:
        raise bridge.failure
    return result


def on_this_loop(ask: AnyOnInput | None) -> OnInput | None:
    """Return a function for other threads that calls ``ask`` on this loop and waits for its answer; None for None."""
    check_listener("on_input", ask)
    if ask is None:
        return None
    loop = asyncio.get_running_loop()

    async def on_loop(prompt: str, password: bool) -> str:
        arguments = (prompt,) if takes_prompt_alone(ask) else (prompt, password)
        answer: str | Awaitable[str] = ask(*arguments)
        return await answer if inspect.isawaitable(answer) else answer

    return lambda prompt, password: asyncio.run_coroutine_threadsafe(on_loop(prompt, password), loop).result()
