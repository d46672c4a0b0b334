"""The runs of a ``Sandbox``: one program, one command, one program for many inputs. Each has a sandbox of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, BinaryIO

from sandbox_kernel.backends.base import OnOutput
from sandbox_kernel.backends.host_failures import check_listener
from sandbox_kernel.backends.program_lookup import BECOME
from sandbox_kernel.box.given_files import named_files, split_input
from sandbox_kernel.box.state import BoxState
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.jail.meter.meter import OnUsage
from sandbox_kernel.jail.streams.asking import AnyOnInput
from sandbox_kernel.limits import DEFAULT_TIMEOUT_S, Limits, quoted
from sandbox_kernel.model import ExecRequest, ExecResult, Language

if TYPE_CHECKING:
    import asyncio


class BoxRuns(BoxState):
    """The part of the facade that runs programs to their end."""

    def run(
        self,
        code: str | bytes,
        language: str | Language = Language.PYTHON,
        *,
        timeout: float = DEFAULT_TIMEOUT_S,
        memory_mb: int | None = None,
        stdin: str | bytes | BinaryIO | None = None,
        env: Mapping[str, str] | None = None,
        args: Sequence[str] = (),
        files: Mapping[str, bytes | str] | None = None,
        limits: Limits | None = None,
        backend: str | None = None,
        check: bool = False,
        python: str | None = None,
        on_output: OnOutput | None = None,
    ) -> ExecResult:
        """Run a program to its end in a sandbox of its own; works inside and outside of event loops.

        ``check`` type-checks TypeScript first; ``python`` is another interpreter, virtual environment or version.
        An open file for ``stdin`` is read as the program takes it, a pipe or a terminal too; wasm and dask read nothing
        from a terminal, where nobody would know when to end, and dask reads everything else first.
        """
        given, source = split_input(stdin)
        request = self._request(code, language, timeout, memory_mb, given, env, args, files, limits)
        chosen = self._backends.choose(request, backend, check, python)
        result = chosen.run(request, on_output=on_output, keep=self._folder.keep, stdin_from=source)
        return replace(result, chosen=self._backends.why(request.language, backend))

    async def arun(
        self,
        code: str | bytes,
        language: str | Language = Language.PYTHON,
        *,
        timeout: float = DEFAULT_TIMEOUT_S,
        memory_mb: int | None = None,
        stdin: str | bytes | None = None,
        env: Mapping[str, str] | None = None,
        args: Sequence[str] = (),
        files: Mapping[str, bytes | str] | None = None,
        limits: Limits | None = None,
        backend: str | None = None,
        check: bool = False,
        python: str | None = None,
        on_output: OnOutput | None = None,
        cancel: asyncio.Event | None = None,
        on_usage: OnUsage | None = None,
        on_input: AnyOnInput | None = None,
    ) -> ExecResult:
        """The same, asynchronously; many at once are fine, and each one's clock starts when it does.

        ``on_usage`` hears a few times a second, on another thread, how many bytes of memory a run uses and may.
        ``on_input(prompt, password)`` is asked for a line when a program waits for its standard input and no ``stdin``
        is given; the input ends where nobody can tell whether a program waits (``jail/streams/blocked_reader.py``).
        """
        request = self._request(code, language, timeout, memory_mb, stdin, env, args, files, limits)
        chosen = self._backends.choose(request, backend, check, python)
        keep = self._folder.keep
        result = await chosen.execute(
            request, on_output=on_output, cancel=cancel, keep=keep, on_usage=on_usage, on_input=on_input
        )
        return replace(result, chosen=self._backends.why(request.language, backend))

    def exec(
        self,
        command: str,
        args: Sequence[str] = (),
        *,
        timeout: float = DEFAULT_TIMEOUT_S,
        memory_mb: int | None = None,
        stdin: str | bytes | None = None,
        env: Mapping[str, str] | None = None,
        files: Mapping[str, bytes | str] | None = None,
        limits: Limits | None = None,
        on_output: OnOutput | None = None,
    ) -> ExecResult:
        """Run one program of the system with these arguments, as they are: no shell reads them.

        ``CommandNotFound`` for a program that is not inside, before anything runs.
        """
        self._check_alive()
        if self._backends.default in ("wasm", "dask"):
            raise InvalidRequest(
                f"exec runs programs of this machine, not on backend {self._backends.default!r}; use run there"
            )
        if isinstance(args, str | bytes):
            raise InvalidRequest(f"args must be a list of strings, got {args!r:.100}; wrap it in a list")
        words = (command, *args)
        request = self._request(BECOME, Language.COMMAND, timeout, memory_mb, stdin, env, words, files, limits)
        self.backend.check_command(request, command)
        result = self.backend.run(request, on_output=on_output, keep=self._folder.keep)
        return replace(result, chosen=self._backends.why(Language.COMMAND, None))

    def map(
        self,
        code: str,
        inputs: Iterable[str | bytes],
        language: str | Language = Language.PYTHON,
        max_workers: int | None = None,
        *,
        timeout: float = DEFAULT_TIMEOUT_S,
        memory_mb: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[ExecResult]:
        """Run a program once for each input, given on stdin, one sandbox each; results in the order of the inputs."""
        from sandbox_kernel.box.many import check_workers, run_each  # threads, which a single run does without

        workers = check_workers(max_workers)
        check_listener("progress", progress)
        if not isinstance(inputs, Iterable):
            raise InvalidRequest(f"inputs must be a list of texts, one for each run, got {quoted(inputs)}")
        # With no input there is nothing to run, and a mistake is one all the same.
        plain = self._request(code, language, timeout, memory_mb, None, None, (), None, None)
        requests = [replace(plain, stdin=item) for item in inputs]
        starts = [partial(self._backends.choose(request, None).run, request) for request in requests]
        return run_each(starts, workers, progress)

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
            env={} if env is None else env,
            args=args,
            files={**self._folder.files(), **named_files(files)},
            limits=Limits.given(limits),
        )
