"""Runs requests, at most so many at once; more wait in a bounded queue, and what does not fit is refused.

A request whose task is cancelled is not run any more, or its program is ended.
"""

from __future__ import annotations

import asyncio
import posixpath
import time

from sandbox_kernel.agent.service.run_code import RunCode, failure, make_answer
from sandbox_kernel.agent.service.service_metrics import ServiceMetrics
from sandbox_kernel.box.sandbox import Sandbox
from sandbox_kernel.errors import SandboxError
from sandbox_kernel.model import ExecResult
from sandbox_kernel.policy import SandboxPolicy
from sandbox_kernel.workspace.given_grants import GivenGrants

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
        #: The files that were granted when the service began; each request has a sandbox of its own.
        self._grants = GivenGrants(policy or SandboxPolicy())
        self._places = asyncio.Semaphore(workers)
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
            async with self._places:
                return await self._work(asked)
        finally:
            self._taken -= 1
            self.metrics.waiting = max(0, self._taken - self._workers)
            self.metrics.running = min(self._taken, self._workers)
            if self._taken == 0:
                self._empty.set()

    async def _work(self, asked: RunCode) -> dict[str, object]:
        began, request, status = time.monotonic(), asked.request, "error"
        try:
            self._grants.now(root=True)
            with Sandbox(self._policy) as box:
                result = await box.arun(
                    request.code,
                    request.language,
                    timeout=request.timeout,
                    memory_mb=request.memory_limit_mb,
                    stdin=request.stdin,
                    args=request.args,
                    files=request.files,
                )
                status = str(result.status)
                self._mean_s += (time.monotonic() - began - self._mean_s) / 16
                found = await asyncio.to_thread(_fetched, box, asked, result) if asked.fetch_files else {}
                return make_answer(asked, result, found)
        except SandboxError as error:
            return failure(error)
        except asyncio.CancelledError:
            status = "interrupted"
            raise
        finally:
            self.metrics.ended(status, time.monotonic() - began)

    async def drain(self) -> None:
        """Take no more requests and wait until all that were taken are answered."""
        self.draining = True
        await self._empty.wait()


def _fetched(box: Sandbox, asked: RunCode, result: ExecResult) -> dict[str, bytes]:
    """Return the files that were asked for, as the program left them; one that is missing or too large is left out.

    The sandbox keeps only what the program changed: other files that the request brought are as they came.
    """
    gone = {change.renamed_from or change.path for change in result.changes if change.kind in ("deleted", "renamed")}
    brought = {
        posixpath.normpath(name): data.encode() if isinstance(data, str) else data
        for name, data in asked.request.files.items()
    }
    found: dict[str, bytes] = {}
    for name in asked.fetch_files:
        path = posixpath.normpath(name)
        try:
            data = box.read_file(name)
        except (SandboxError, OSError):
            if path not in brought or any(path == each or path.startswith(f"{each}/") for each in gone):
                continue
            data = brought[path]
        if sum(map(len, found.values())) + len(data) <= MAX_FETCHED_BYTES:
            found[name] = data
    return found
