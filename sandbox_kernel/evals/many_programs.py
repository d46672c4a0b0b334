"""Checks many programs at once: where they run, how far the work is, and the order of the results."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

from sandbox_kernel.box.runs import check_workers
from sandbox_kernel.box.sandbox import Sandbox
from sandbox_kernel.errors import InvalidRequest

#: Called as ``progress(done, total)``; True shows a bar.
Progress = Callable[[int, int], None] | bool | None
_Found = TypeVar("_Found")


def box_for(box: Sandbox | None, backend: str | None) -> Sandbox | None:
    """Return the sandbox of a check: the given one, or a shared one on a backend; None for the default of a verdict."""
    if backend is None:
        return box
    if box is not None:
        raise InvalidRequest("give a sandbox or a backend, not both; a sandbox has its own: Sandbox(backend='dask')")
    return _box_on(backend)


@functools.lru_cache(maxsize=4)
def _box_on(backend: str) -> Sandbox:
    return Sandbox(backend=backend)


os.register_at_fork(after_in_child=_box_on.cache_clear)


def each_checked(
    checks: Sequence[Callable[[], _Found]],
    workers: int | None,
    progress: Progress,
    on_found: Callable[[int, _Found], None] | None = None,
    done_before: int = 0,
) -> list[_Found]:
    """Make these checks, several at once, and return their results in order.

    Args:
        checks: What to do.
        workers: How many run at the same time; 4 by default.
        progress: Called as ``progress(done, total)`` after each check, in the order in which they end; True for a bar.
        on_found: Called with the place of a check and its result as soon as it is there, on this thread.
        done_before: How many more checks of the same work were done before this call.

    """
    found: dict[int, _Found] = {}
    total = len(checks) + done_before
    with (
        _shown(progress, total) as tell,
        ThreadPoolExecutor(check_workers(workers), thread_name_prefix="sandbox-eval") as pool,
    ):
        places = {pool.submit(check): place for place, check in enumerate(checks)}
        try:
            for future in as_completed(places):
                place = places[future]
                found[place] = future.result()
                if on_found is not None:
                    on_found(place, found[place])
                tell(done_before + len(found), total)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return [found[place] for place in range(len(checks))]


@contextlib.contextmanager
def _shown(progress: Progress, total: int) -> Iterator[Callable[[int, int], None]]:
    if progress is not True:
        yield progress or _silent
        return
    try:
        from tqdm.auto import tqdm
    except ImportError:
        raise InvalidRequest("progress=True shows a bar of tqdm: pip install tqdm, or give a function") from None
    with tqdm(total=total, unit="program") as bar:
        yield lambda done, _total: bar.update(done - bar.n)


def _silent(done: int, total: int) -> None:
    """Nobody watches."""
