"""Runs blocking work in threads for callers with an event loop, with callbacks on that loop.

A module of its own, because only this part needs asyncio, and importing asyncio takes longer than a run.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

from sandbox_kernel.backends.host_failures import check_listener, host_trouble
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.jail.core.job import OnOutput
from sandbox_kernel.jail.streams.asking import AnyOnInput, OnInput, takes_prompt_alone
from sandbox_kernel.jail.streams.stop import Stop
from sandbox_kernel.limits import quoted
from sandbox_kernel.model import ExecResult


@functools.lru_cache(maxsize=1)
def _threads() -> ThreadPoolExecutor:
    """Return the threads for runs. A run that waits for a thread has not started its deadline."""
    return ThreadPoolExecutor(max_workers=max(8, 4 * (os.cpu_count() or 2)), thread_name_prefix="sandbox-run")


os.register_at_fork(after_in_child=_threads.cache_clear)


async def in_thread(
    work: Callable[[OnOutput | None, Stop], ExecResult], on_output: OnOutput | None, cancel: asyncio.Event | None
) -> ExecResult:
    """Run ``work`` in a thread, with ``on_output`` on this loop. ``cancel``, or cancelling the caller, stops it."""
    check_listener("on_output", on_output)
    check_cancel(cancel)
    loop = asyncio.get_running_loop()
    with host_trouble():
        stop = Stop()
    failure: list[BaseException] = []

    def call(stream: str, text: str) -> None:
        try:
            if on_output is not None and not failure:
                on_output(stream, text)
        except BaseException as error:
            # The callback of the caller failed: stop the run.
            failure.append(error)
            stop.set()

    def emit(stream: str, text: str) -> None:
        loop.call_soon_threadsafe(call, stream, text)

    def whole() -> ExecResult:
        # The thread closes it: a caller that is cancelled twice returns while the thread still uses it.
        with contextlib.closing(stop):
            return work(emit if on_output is not None else None, stop)

    done = loop.run_in_executor(_threads(), whole)
    watcher = asyncio.ensure_future(_stop_when(cancel, stop)) if cancel is not None else None
    try:
        result = await asyncio.shield(done)
    except asyncio.CancelledError:
        stop.set()
        with contextlib.suppress(BaseException):
            await done
        raise
    finally:
        if watcher is not None:
            watcher.cancel()
    if failure:
        raise failure[0]
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


def check_cancel(cancel: object) -> None:
    """Raise ``InvalidRequest`` for anything but an ``asyncio.Event``: a threading event would block the loop."""
    if cancel is not None and not isinstance(cancel, asyncio.Event):
        raise InvalidRequest(f"cancel must be an asyncio.Event, got {quoted(cancel)}")


async def _stop_when(cancel: asyncio.Event, stop: Stop) -> None:
    await cancel.wait()
    stop.set()
