"""Many runs at once, their results in order; when one cannot go on, the others are stopped and not waited for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.jail.streams.stop import Stop
from sandbox_kernel.limits import quoted
from sandbox_kernel.model import ExecResult

#: Threads that a ``map`` may have: each waits for a sandbox, and a host has so many processes and descriptors.
MOST_WORKERS = 256


class ReadyRun(Protocol):
    """A run that is ready to begin."""

    def __call__(self, *, stop: Stop | None) -> ExecResult:
        """Run it to its end, or until it is stopped."""


def run_each(starts: Sequence[ReadyRun], workers: int, progress: Callable[[int, int], None] | None) -> list[ExecResult]:
    """Run all of them, so many at once; ``progress`` hears how many of how many are back, in their order."""
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
        # Ctrl-C, or a progress callback that failed: nobody will see the others, so they are not waited for.
        stop.set()
        raise
    finally:
        threads.shutdown(cancel_futures=True)
        stop.close()
    return results


def check_workers(max_workers: int | None) -> int:
    """How many runs of a ``map`` may be under way at once."""
    if max_workers is None:
        return 4
    if isinstance(max_workers, bool) or not isinstance(max_workers, int) or max_workers < 1:
        raise InvalidRequest(f"max_workers must be a whole number of at least 1, got {quoted(max_workers)}")
    return min(max_workers, MOST_WORKERS)
