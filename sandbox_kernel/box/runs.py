"""The run methods of ``Sandbox``: one program, one command, one program for many inputs. Each run gets a new jail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, BinaryIO

from sandbox_kernel.backends.requests.program_lookup import BECOME
from sandbox_kernel.box.given_files import named_files, split_input
from sandbox_kernel.box.state import BoxState
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.limits import DEFAULT_TIMEOUT_S, Limits, quoted
from sandbox_kernel.model import AnyOnInput, ExecRequest, ExecResult, Language, OnOutput, OnUsage, check_listener

if TYPE_CHECKING:
    import asyncio


class BoxRuns(BoxState):
    """The run methods of ``Sandbox``."""

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
        """Run a program to its end in a new jail. Works inside and outside of event loops.

        Args:
            code: The source text of the program, or the bytes of a wasm module.
            language: The language of the program, as a name (``"python"``, ``"rust"``) or a ``Language``.
            timeout: Wall-clock limit in seconds.
            memory_mb: Memory limit in MB of the program with all its processes; 2048 by default.
            stdin: Standard input of the program: text, bytes, or a file open for reading bytes. A file is read while
                the program reads it; ``dask`` reads it completely first. ``wasm`` and ``dask`` read no terminal.
            env: Environment variables of the program, besides those that the policy allows.
            args: Command-line arguments of the program.
            files: Contents by path, added to the work folder for this run.
            limits: Limits besides time and memory; safe defaults for None.
            backend: ``auto``, ``process``, ``wasm`` or ``dask``; the sandbox's own by default.
            check: Type-check the program first; only for TypeScript.
            python: Another Python: a path, a virtual environment or a version; only for Python programs.
            on_output: Called as ``on_output(stream, text)`` while the program prints; ``stream`` is ``"stdout"`` or
                ``"stderr"``.

        Returns:
            The result: status, exit code, output, time, memory and changed files. A program that fails or reaches a
            limit is a result, not an exception.

        Raises:
            InvalidRequest: An argument has a wrong type or value.
            BackendUnavailable: This host lacks a program that the language or the backend needs.
            SandboxDestroyed: The sandbox was destroyed.

        """
        given, source = split_input(stdin)
        request = self._request(code, language, timeout, memory_mb, given, env, args, files, limits)
        chosen = self._backends.choose(request, backend, check, python)
        result = chosen.run(
            request,
            on_output=on_output,
            keep=self._folder.keep,
            stdin_from=source,
            over=self._here,
            functions=self._functions,
        )
        return self._told(result, request.language, backend)

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
        """Run a program like ``run``, asynchronously. Many may run at once; each time limit starts with its program.

        Args:
            code: The source text of the program, or the bytes of a wasm module.
            language: The language of the program, as a name (``"python"``, ``"rust"``) or a ``Language``.
            timeout: Wall-clock limit in seconds.
            memory_mb: Memory limit in MB of the program with all its processes; 2048 by default.
            stdin: Standard input of the program, as text or bytes.
            env: Environment variables of the program, besides those that the policy allows.
            args: Command-line arguments of the program.
            files: Contents by path, added to the work folder for this run.
            limits: Limits besides time and memory; safe defaults for None.
            backend: ``auto``, ``process``, ``wasm`` or ``dask``; the sandbox's own by default.
            check: Type-check the program first; only for TypeScript.
            python: Another Python: a path, a virtual environment or a version; only for Python programs.
            on_output: Called as ``on_output(stream, text)`` while the program prints; ``stream`` is ``"stdout"`` or
                ``"stderr"``.
            cancel: Set this event to stop the run; its status is then ``interrupted``.
            on_usage: Called a few times a second, on another thread, as ``on_usage(used_bytes, limit_bytes)``.
            on_input: Called as ``on_input(prompt, password)`` when the program waits for standard input and no
                ``stdin`` was given; returns the line. Where a waiting program cannot be detected
                (``jail/input_prompts.py``), the input is empty instead.

        Returns:
            The result, as from ``run``.

        Raises:
            InvalidRequest: An argument has a wrong type or value.
            BackendUnavailable: This host lacks a program that the language or the backend needs.
            SandboxDestroyed: The sandbox was destroyed.

        """
        request = self._request(code, language, timeout, memory_mb, stdin, env, args, files, limits)
        chosen = self._backends.choose(request, backend, check, python)
        keep, over = self._folder.keep, self._here
        result = await chosen.execute(
            request,
            on_output=on_output,
            cancel=cancel,
            keep=keep,
            on_usage=on_usage,
            on_input=on_input,
            over=over,
            functions=self._functions,
        )
        return self._told(result, request.language, backend)

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
        """Run one program of the system. Its arguments are passed as they are, without a shell.

        Args:
            command: The name of the program, or its path inside the jail.
            args: Its arguments, as a list of strings.
            timeout: Wall-clock limit in seconds.
            memory_mb: Memory limit in MB of the program with all its processes; 2048 by default.
            stdin: Standard input of the program, as text or bytes.
            env: Environment variables of the program, besides those that the policy allows.
            files: Contents by path, added to the work folder for this run.
            limits: Limits besides time and memory; safe defaults for None.
            on_output: Called as ``on_output(stream, text)`` while the program prints.

        Returns:
            The result, as from ``run``.

        Raises:
            CommandNotFound: The program does not exist inside the jail; nothing was run.
            InvalidRequest: An argument is wrong, or the sandbox's backend is ``wasm`` or ``dask``.
            SandboxDestroyed: The sandbox was destroyed.

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
        result = self.backend.run(
            request, on_output=on_output, keep=self._folder.keep, over=self._here, functions=self._functions
        )
        return self._told(result, Language.COMMAND, None)

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
        """Run a program once for each input, each in a new jail.

        Args:
            code: The source text of the program.
            inputs: Texts or bytes; each is the standard input of one run.
            language: The language of the program.
            max_workers: How many runs at the same time; 4 by default, at most 256.
            timeout: Wall-clock limit in seconds of each run.
            memory_mb: Memory limit in MB of each run; 2048 by default.
            progress: Called as ``progress(done, total)`` after each result.

        Returns:
            One result for each input, in the order of the inputs.

        Raises:
            InvalidRequest: An argument has a wrong type or value.
            SandboxDestroyed: The sandbox was destroyed.

        """
        from sandbox_kernel.box.many import check_workers, run_each  # imports threads, which a single run does not need

        workers = check_workers(max_workers)
        check_listener("progress", progress)
        if not isinstance(inputs, Iterable):
            raise InvalidRequest(f"inputs must be a list of texts, one for each run, got {quoted(inputs)}")
        # Checks the arguments even when there is no input.
        plain = self._request(code, language, timeout, memory_mb, None, None, (), None, None)
        requests = [replace(plain, stdin=item) for item in inputs]
        starts = [
            partial(self._backends.choose(request, None).run, request, over=self._here, functions=self._functions)
            for request in requests
        ]
        return run_each(starts, workers, progress)

    def _told(self, result: ExecResult, language: Language, backend: str | None) -> ExecResult:
        """Return the result with why its backend ran it, and how it saw the user's folder."""
        here = "" if self._here is None else result.here or "copy"
        return replace(result, chosen=self._backends.why(language, backend), here=here)

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
            files={**({} if self._here is not None else self._folder.files()), **named_files(files)},
            limits=Limits.given(limits),
        )
