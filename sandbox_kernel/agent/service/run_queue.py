"""Runs requests in threads, at most so many at once; more wait in a bounded queue, and what does not fit is refused."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

from sandbox_kernel.agent.service.run_code import RunCode, failure, make_answer
from sandbox_kernel.agent.service.service_metrics import ServiceMetrics
from sandbox_kernel.box.sandbox import Sandbox
from sandbox_kernel.errors import SandboxError
from sandbox_kernel.policy import SandboxPolicy

#: The largest file, and all files together, that one answer returns, in bytes.
MAX_FETCHED_BYTES = 16 << 20


class QueueFull(Exception):
    """No request can be taken now. ``retry_after_s`` says when it is worth trying again."""

    def __init__(self, retry_after_s: int) -> None:
        super().__init__(f"the queue is full; try again in {retry_after_s} s")
        self.retry_after_s = retry_after_s


class RunQueue:
    """Runs each request in a sandbox of its own. Used on one event loop.

    Args:
        policy: What programs may read, write, reach and start.
        workers: How many programs run at the same time.
        waiting: How many more requests may wait.

    """

    def __init__(self, policy: SandboxPolicy | None, workers: int, waiting: int) -> None:
        self.metrics = ServiceMetrics()
        self.draining = False
        self._policy, self._workers, self._room = policy, workers, workers + waiting
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="sandbox-serve")
        self._taken = 0
        self._mean_s = 1.0
        self._empty = asyncio.Event()
        self._empty.set()

    async def run(self, asked: RunCode) -> dict[str, object]:
        """Run a request and return its answer. Raises ``QueueFull``, without waiting, when there is no room."""
        if self.draining or self._taken >= self._room:
            self.metrics.refused += 1
            raise QueueFull(max(1, round(self._mean_s * (self._taken / self._workers))))
        self._taken += 1
        self._empty.clear()
        self.metrics.waiting = max(0, self._taken - self._workers)
        self.metrics.running = min(self._taken, self._workers)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._work, asked)
        finally:
            self._taken -= 1
            self.metrics.waiting = max(0, self._taken - self._workers)
            self.metrics.running = min(self._taken, self._workers)
            if self._taken == 0:
                self._empty.set()

    def _work(self, asked: RunCode) -> dict[str, object]:
        began = time.monotonic()
        try:
            with Sandbox(self._policy) as box:
                request = asked.request
                result = box.run(
                    request.code,
                    request.language,
                    timeout=request.timeout,
                    memory_mb=request.memory_limit_mb,
                    stdin=request.stdin,
                    args=request.args,
                    files=request.files,
                )
                self.metrics.ended(str(result.status), time.monotonic() - began)
                self._mean_s += (time.monotonic() - began - self._mean_s) / 16
                return make_answer(asked, result, _fetched(box, asked.fetch_files))
        except SandboxError as error:
            self.metrics.ended("error", time.monotonic() - began)
            return failure(error)

    async def drain(self) -> None:
        """Take no more requests and wait until all that were taken are answered."""
        self.draining = True
        await self._empty.wait()
        self._threads.shutdown(wait=False)


def _fetched(box: Sandbox, names: tuple[str, ...]) -> dict[str, bytes]:
    """Return the files that were asked for; one that does not exist or is too large is left out."""
    found: dict[str, bytes] = {}
    for name in names:
        try:
            data = box.read_file(name)
        except (SandboxError, OSError):
            continue
        if sum(map(len, found.values())) + len(data) <= MAX_FETCHED_BYTES:
            found[name] = data
    return found
