"""Runs many requests in threads and returns the results in input order. If one raises, the others are stopped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.jail.streams import Stop
from sandbox_kernel.limits import quoted
from sandbox_kernel.model import ExecResult

#: Most threads of one ``map``. Each runs one sandbox, which needs processes and file descriptors of the host.
MOST_WORKERS = 256


class ReadyRun(Protocol):
    """A function that runs one prepared request."""

    def __call__(self, *, stop: Stop | None) -> ExecResult:
        """Run the request to its end, or until ``stop`` is set."""


def run_each(starts: Sequence[ReadyRun], workers: int, progress: Callable[[int, int], None] | None) -> list[ExecResult]:
    """Run every request, at most ``workers`` at a time, and return the results in input order.

    Calls ``progress(done, total)`` after each result.
    """
    results: list[ExecResult] = []
    threads = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="sandbox-map")
    stop = Stop()
    try:
        futures = [threads.submit(start, stop=stop) for start in starts]
        for future in futures:
            results.append(future.result())
            if progress is not None:
                progress(len(results), len(starts))
    except BaseException:
        # Ctrl-C, or a progress callback that raised: the caller gets no results, so the other runs are stopped.
        stop.set()
        raise
    finally:
        threads.shutdown(cancel_futures=True)
        stop.close()
    return results


def check_workers(max_workers: int | None) -> int:
    """Return how many runs of a ``map`` run at the same time: ``max_workers``, or 4 for None."""
    if max_workers is None:
        return 4
    if isinstance(max_workers, bool) or not isinstance(max_workers, int) or max_workers < 1:
        raise InvalidRequest(f"max_workers must be a whole number of at least 1, got {quoted(max_workers)}")
    return min(max_workers, MOST_WORKERS)
