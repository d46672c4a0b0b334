"""The run methods of ``Sandbox``: one program, one command, one program for many inputs. Each run gets a new jail."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from sandbox_kernel.backends.base import RunContext
from sandbox_kernel.backends.checks import BECOME
from sandbox_kernel.backends.choice import Backends
from sandbox_kernel.backends.process import ProcessBackend
from sandbox_kernel.box.files import BoxFiles
from sandbox_kernel.errors import InvalidRequest, PathTraversal
from sandbox_kernel.jail.streams import Stop
from sandbox_kernel.limits import DEFAULT_TIMEOUT_S, Limits, check_whole, quoted
from sandbox_kernel.model import (
    AnyOnInput,
    Events,
    ExecRequest,
    ExecResult,
    Language,
    NoteKind,
    OnOutput,
    OnUsage,
    check_listener,
)

if TYPE_CHECKING:
    import asyncio

    from sandbox_kernel.backends.functions.host_function import HostFunctions

#: Most threads of one ``map``. Each runs one sandbox, which needs processes and file descriptors of the host.
MOST_WORKERS = 256


class BoxRuns(BoxFiles):
    """The run methods of ``Sandbox``."""

    _backends: Backends
    _functions: HostFunctions | None

    @property
    def backend(self) -> ProcessBackend:
        """The process backend. Every sandbox has one."""
        return self._backends.process

    @backend.setter
    def backend(self, other: ProcessBackend) -> None:
        self._backends.process = other

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
            memory_mb: Memory limit in MB of the program with all its processes; ``DEFAULT_MEMORY_MB`` for None.
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
        """
        given, source = (stdin, None) if stdin is None or isinstance(stdin, str | bytes) else (None, _number_of(stdin))
        request = self._request(code, language, timeout, memory_mb, given, env, args, files, limits)
        chosen = self._backends.choose(request, backend, check, python)
        return chosen.run(request, self._context(request.language, backend, on_output=on_output, stdin_from=source))

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

        The arguments are those of ``run``, except that ``stdin`` is no file, and these:

        - ``cancel``: Set this event to stop the run; its status is then ``interrupted``.
        - ``on_usage``: Called a few times a second, on another thread, as ``on_usage(used_bytes, limit_bytes)``.
        - ``on_input``: Called as ``on_input(prompt, password)`` when the program waits for standard input and no
          ``stdin`` was given; returns the line. Where a waiting program cannot be detected
          (``jail/input_prompts.py``), the input is empty instead.
        """
        request = self._request(code, language, timeout, memory_mb, stdin, env, args, files, limits)
        chosen = self._backends.choose(request, backend, check, python)
        context = self._context(request.language, backend, on_usage=on_usage)
        return await chosen.execute(request, on_output=on_output, cancel=cancel, on_input=on_input, context=context)

    async def perform(self, request: ExecRequest, events: Events, cancel: asyncio.Event) -> ExecResult:
        """Run a request on the sandbox's own backend, with its files; for the notebook.

        ``on_output`` is called on this loop, the other callbacks on threads of the run.
        """
        self._check_alive()
        request = replace(request, files=self._with_own(request.files))
        chosen, context = self._backends.choose(request, None), self._context(request.language, None)
        context = replace(context, on_usage=events.on_usage, on_input=events.on_input)
        return await chosen.execute(request, on_output=events.on_output, cancel=cancel, context=context)

    def resume(self, path: str | os.PathLike[str]) -> None:
        """Fill the empty work folder from a tar file that ``snapshot`` wrote; from a hostile one nothing is taken.

        The tar is read inside a jail. Raises ``InvalidRequest`` when a member is neither a file nor a folder below the
        work folder, or it is too much.
        """
        from sandbox_kernel.workspace.archive import LEADS_OUT, UNPACK
        from sandbox_kernel.workspace.transfer import MAX_PACKED_FILES

        self._check_alive()
        if self.here is not None or self.list_dir():
            raise InvalidRequest(f"{os.fspath(path)!r} is resumed in a new sandbox; this one has files already")
        try:
            with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
                request = ExecRequest(language=Language.PYTHON, code=UNPACK, timeout=60, limits=Limits(disk_mb=1024))
                context = self._context(request.language, "process", stdin_from=_number_of(file))
                context = replace(context, keep=lambda box, found: self._folder.keep(box, found, MAX_PACKED_FILES))
                done = self._backends.choose(request, "process").run(request, context)
        except OSError as error:
            raise InvalidRequest(f"{os.fspath(path)!r} cannot be read: {error.strerror}; check the path") from error
        lost = [note for note in done.notes if note.kind in (NoteKind.FILES_NOT_KEPT, NoteKind.UNSEEN_CHANGES)]
        if not done.ok or lost:
            self.clear_files()
            why = lost[0] if lost else done.limit or done.stderr.strip()[-300:]
            refused = PathTraversal if done.exit_code == LEADS_OUT else InvalidRequest
            raise refused(f"{os.fspath(path)!r} was not resumed, and nothing of it is kept: {why}")

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

        ``command`` is the name of the program, or its path inside the jail. The other arguments are those of ``run``.

        Raises:
            CommandNotFound: The program does not exist inside the jail; nothing was run.
            InvalidRequest: An argument is wrong, or the sandbox's backend is ``wasm`` or ``dask``.
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
        return self.backend.run(request, self._context(Language.COMMAND, None, on_output=on_output))

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
        """Run a program once for each input, each in a new jail; returns the results in the order of the inputs.

        The arguments are those of ``run``, and these:

        - ``inputs``: Texts or bytes; each is the standard input of one run.
        - ``max_workers``: How many runs at the same time; 4 by default, at most 256.
        - ``progress``: Called as ``progress(done, total)`` after each result.
        """
        workers = check_workers(max_workers)
        check_listener("progress", progress)
        if not isinstance(inputs, Iterable):
            raise InvalidRequest(f"inputs must be a list of texts, one for each run, got {quoted(inputs)}")
        # Checks the arguments even when there is no input.
        plain = self._request(code, language, timeout, memory_mb, None, None, (), None, None)
        requests = [replace(plain, stdin=item) for item in inputs]
        chosen, context = self._backends.choose(plain, None), self._context(plain.language, None)
        # Runs at the same time would overwrite each other's files.
        context = replace(context, keep=None)

        def one(request: ExecRequest, stop: Stop) -> ExecResult:
            return chosen.run(request, replace(context, stop=stop))

        return run_each(one, requests, workers, progress)

    def _context(
        self,
        language: Language,
        backend: str | None,
        *,
        on_output: OnOutput | None = None,
        on_usage: OnUsage | None = None,
        stdin_from: int | None = None,
    ) -> RunContext:
        """Return how a run is tied to this sandbox: its files, its functions, and why its backend runs it."""
        here = self._here
        return RunContext(
            on_output=on_output,
            on_usage=on_usage,
            stdin_from=stdin_from,
            keep=self._folder.keep if here is None else None,
            here=here,
            functions=self._functions,
            chosen=self._backends.why(language, backend),
        )

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
            language=language,  # type: ignore[arg-type] # the request parses it
            code=code,
            timeout=timeout,
            memory_limit_mb=memory_mb,
            stdin=stdin,
            env={} if env is None else env,
            args=args,
            files=self._with_own(named_files(files)),
            limits=Limits.given(limits),
        )

    def _with_own(self, files: Mapping[str, bytes | str]) -> Mapping[str, bytes | str]:
        """Return the files of the work folder, and those that one run adds."""
        return {**({} if self._here is not None else self._folder.files()), **files}


_Request = TypeVar("_Request")
_Result = TypeVar("_Result")


def run_each(
    run: Callable[[_Request, Stop], _Result],
    requests: Sequence[_Request],
    workers: int,
    progress: Callable[[int, int], None] | None,
) -> list[_Result]:
    """Run every request, ``workers`` at a time, calling ``progress(done, total)``; returns the results in order."""
    from concurrent.futures import ThreadPoolExecutor  # a single run needs no threads

    results: list[_Result] = []
    threads = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="sandbox-map")
    stop = Stop()
    try:
        futures = [threads.submit(run, request, stop) for request in requests]
        for future in futures:
            results.append(future.result())
            if progress is not None:
                progress(len(results), len(requests))
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
    return 4 if max_workers is None else min(check_whole("max_workers", max_workers, 1), MOST_WORKERS)


def _number_of(stdin: BinaryIO) -> int:
    try:
        return stdin.fileno()
    except (AttributeError, OSError, ValueError):
        raise InvalidRequest(
            f"stdin must be text, bytes or a file that is open for reading bytes, got {quoted(stdin)}"
        ) from None


def named_files(files: Mapping[str, bytes | str] | None) -> Mapping[str, bytes | str]:
    """Return ``files`` as a mapping of paths in /box to contents; empty for None."""
    if files is not None and not isinstance(files, Mapping):
        raise InvalidRequest(f"files must be a mapping of names to contents, got {quoted(files)}")
    return files or {}
