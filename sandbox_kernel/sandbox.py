"""The facade: one object that runs code, keeps its files, and says what it enforces."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

from sandbox_kernel.backends.base import OnOutput
from sandbox_kernel.backends.process import ProcessBackend
from sandbox_kernel.errors import InvalidRequest, SandboxDestroyed
from sandbox_kernel.limits import Limits
from sandbox_kernel.model import ExecRequest, ExecResult, Language
from sandbox_kernel.policy import SandboxPolicy
from sandbox_kernel.report import CapabilityReport, make_report


class Sandbox:
    """Runs programs under one policy. Use it as a context manager, or call ``destroy`` when done."""

    def __init__(self, policy: SandboxPolicy | None = None, backend: str = "auto") -> None:
        if backend not in ("auto", "process", "wasm"):
            raise InvalidRequest(f"unknown backend {backend!r}; expected one of: auto, process, wasm")
        self.policy = policy if policy is not None else SandboxPolicy.preset("standard")
        self.backend = ProcessBackend(policy=self.policy)
        self._destroyed = False

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.destroy()

    def run(
        self,
        code: str | bytes,
        language: str | Language = Language.PYTHON,
        *,
        timeout: float = 30.0,
        memory_mb: int | None = None,
        stdin: str | bytes | None = None,
        env: Mapping[str, str] | None = None,
        args: Sequence[str] = (),
        files: Mapping[str, bytes | str] | None = None,
        limits: Limits | None = None,
        on_output: OnOutput | None = None,
    ) -> ExecResult:
        """Run a program to its end in a sandbox of its own; works inside and outside of event loops."""
        return self.backend.run(
            self._request(code, language, timeout, memory_mb, stdin, env, args, files, limits), on_output=on_output
        )

    async def arun(
        self,
        code: str | bytes,
        language: str | Language = Language.PYTHON,
        *,
        timeout: float = 30.0,
        memory_mb: int | None = None,
        stdin: str | bytes | None = None,
        env: Mapping[str, str] | None = None,
        args: Sequence[str] = (),
        files: Mapping[str, bytes | str] | None = None,
        limits: Limits | None = None,
        on_output: OnOutput | None = None,
        cancel: asyncio.Event | None = None,
    ) -> ExecResult:
        """The same, asynchronously; many at once are fine, and each one's clock starts when it does."""
        request = self._request(code, language, timeout, memory_mb, stdin, env, args, files, limits)
        return await self.backend.execute(request, on_output=on_output, cancel=cancel)

    def map(
        self,
        code: str,
        inputs: Iterable[str | bytes],
        language: str | Language = Language.PYTHON,
        max_workers: int | None = None,
        *,
        timeout: float = 30.0,
        memory_mb: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[ExecResult]:
        """Run a program once for each input, given on stdin, one sandbox each; results in the order of the inputs."""
        if max_workers is not None and max_workers < 1:
            raise InvalidRequest(f"max_workers must be at least 1, got {max_workers!r}")
        given = list(inputs)
        requests = [self._request(code, language, timeout, memory_mb, item, None, (), None, None) for item in given]
        done = 0
        with ThreadPoolExecutor(max_workers=max_workers or 4, thread_name_prefix="sandbox-map") as threads:
            futures = [threads.submit(self.backend.run, request) for request in requests]
            results = []
            for future in futures:
                results.append(future.result())
                done += 1
                if progress is not None:
                    progress(done, len(given))
        return results

    def report(self, *, again: bool = False) -> CapabilityReport:
        """What is enforced here, measured in the jail that is really used; cached, ``again`` measures anew."""
        self._check_alive()
        return make_report(self.backend, again=again)

    def destroy(self) -> None:
        """End everything that this sandbox holds; every later call raises ``SandboxDestroyed``."""
        self._destroyed = True

    def _request(
        self,
        code: str | bytes,
        language: str | Language,
        timeout: float,
        memory_mb: int | None,
        stdin: str | bytes | None,
        env: Mapping[str, str] | None,
        args: Sequence[str],
        files: Mapping[str, bytes | str] | None,
        limits: Limits | None,
    ) -> ExecRequest:
        self._check_alive()
        return ExecRequest(
            language=Language.parse(language),
            code=code,
            timeout=timeout,
            memory_limit_mb=memory_mb,
            stdin=stdin,
            env=env or {},
            args=args,
            files=files or {},
            limits=limits or Limits(),
        )

    def _check_alive(self) -> None:
        if self._destroyed:
            raise SandboxDestroyed("this sandbox was destroyed; make a new one: Sandbox()")
