"""The facade: one object that runs code, keeps its files and sessions, and says what it enforces."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO

from sandbox_kernel.backends.base import OnOutput
from sandbox_kernel.backends.host_trouble import check_listener
from sandbox_kernel.backends.process import ProcessBackend
from sandbox_kernel.backends.program_lookup import BECOME
from sandbox_kernel.errors import InvalidRequest, NetworkingDisabled
from sandbox_kernel.jail.asking import AnyOnInput
from sandbox_kernel.jail.meter import OnUsage
from sandbox_kernel.jail.stop import Stop
from sandbox_kernel.jail.undertaker import wait_buried
from sandbox_kernel.languages.recipe import ProcessConfig
from sandbox_kernel.limits import Limits, quoted
from sandbox_kernel.model import ExecRequest, ExecResult, Language
from sandbox_kernel.net.egress import Egress, with_placeholders
from sandbox_kernel.policy import SandboxPolicy, check_policy
from sandbox_kernel.workspace.box_files import BoxFiles

if TYPE_CHECKING:
    import asyncio

    from sandbox_kernel.backends.canaries import OnProgress
    from sandbox_kernel.backends.dask import DaskBackend
    from sandbox_kernel.backends.wasm import WasmBackend
    from sandbox_kernel.backends.wasm_prepare import OnProgress as OnPrepare
    from sandbox_kernel.net.audit import AuditSink
    from sandbox_kernel.net.messages import FetchRequest, FetchResponse
    from sandbox_kernel.net.resolve import Resolver
    from sandbox_kernel.net.safe_client import SafeClient
    from sandbox_kernel.net.secret_headers import Secret
    from sandbox_kernel.report import CapabilityReport
    from sandbox_kernel.session.session import Session

#: Threads that a ``map`` may have: each waits for a sandbox, and a host has so many processes and descriptors.
MOST_WORKERS = 256
BACKENDS = ("auto", "process", "wasm", "dask")


class _LoadSession:
    """``box.load_session(path)``, and ``Sandbox.load_session(path)`` for a session with a sandbox of its own."""

    def __get__(self, box: Sandbox | None, owner: type[Sandbox]) -> Callable[..., Session]:
        def load_session(path: str | os.PathLike[str], *, name: str | None = None) -> Session:
            """Go on with a session that ``save`` wrote, here or on another machine with the same versions."""
            return (box if box is not None else owner())._load_session(path, name=name)

        return load_session


class Sandbox(BoxFiles):
    """Runs programs under one policy. Use it as a context manager, or call ``destroy`` when done.

    Each run is a sandbox of its own; what runs and sessions share is the folder /box, whose files live as long as this
    object.
    """

    def __init__(
        self,
        policy: SandboxPolicy | None = None,
        backend: str = "auto",
        *,
        config: ProcessConfig | None = None,
        require: Iterable[str] = (),
        audit: AuditSink | str | os.PathLike[str] | None = None,
        allow_private_for: Iterable[str] = (),
        resolver: Resolver | None = None,
        secrets: Iterable[Secret] = (),
    ) -> None:
        """``require`` fails closed: no sandbox unless these areas or lines of its report are enforced here.

        ``audit`` is a file to which every decision about the network is appended as a JSON line, or a function.
        ``allow_private_for`` names hosts of the policy that may have private addresses; ``resolver`` resolves names.
        ``secrets`` never enter: programs have placeholders, and the host puts the values into headers on their way out.
        """
        super().__init__()
        self._default = _known_backend(backend)
        check_policy(policy)
        self.policy = policy if policy is not None else SandboxPolicy.preset("standard")
        self._egress = Egress(audit, allow_private_for, resolver, secrets)
        self.policy = with_placeholders(self.policy, self._egress.vault)
        self._client: SafeClient | None = None
        self.backend = self._process_backend(config)
        self._wasm: WasmBackend | None = None
        #: Hears how far a language is that WebAssembly must make ready first; see ``WasmBackend``.
        self.on_prepare: OnPrepare | None = None
        self._sessions: weakref.WeakSet[Session] = weakref.WeakSet()
        if require:
            self.report(require=require)

    def __enter__(self) -> Sandbox:
        self._check_alive()
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
        source, given = (None, stdin) if stdin is None or isinstance(stdin, str | bytes) else (_descriptor(stdin), None)
        request = self._request(code, language, timeout, memory_mb, given, env, args, files, limits)
        chosen = self._choose(request, backend, check, python)
        result = chosen.run(request, on_output=on_output, keep=self._folder.keep, stdin_from=source)
        return replace(result, chosen=self._why(request.language, backend))

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
        is given; the input ends where nobody can tell whether a program waits (``jail/waiting_reader.py``).
        """
        request = self._request(code, language, timeout, memory_mb, stdin, env, args, files, limits)
        chosen = self._choose(request, backend, check, python)
        keep = self._folder.keep
        result = await chosen.execute(
            request, on_output=on_output, cancel=cancel, keep=keep, on_usage=on_usage, on_input=on_input
        )
        return replace(result, chosen=self._why(request.language, backend))

    def exec(
        self,
        command: str,
        args: Sequence[str] = (),
        *,
        timeout: float = 30.0,
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
        if self._default in ("wasm", "dask"):
            raise InvalidRequest(f"exec runs programs of this machine, not on backend {self._default!r}; use run there")
        if isinstance(args, str | bytes):
            raise InvalidRequest(f"args must be a list of strings, got {args!r:.100}; wrap it in a list")
        words = (command, *args)
        request = self._request(BECOME, Language.COMMAND, timeout, memory_mb, stdin, env, words, files, limits)
        self.backend.check_command(request, command)
        result = self.backend.run(request, on_output=on_output, keep=self._folder.keep)
        return replace(result, chosen=self._why(Language.COMMAND, None))

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
        workers = _check_workers(max_workers)
        check_listener("progress", progress)
        if not isinstance(inputs, Iterable):
            raise InvalidRequest(f"inputs must be a list of texts, one for each run, got {quoted(inputs)}")
        # With no input there is nothing to run, and a mistake is one all the same.
        plain = self._request(code, language, timeout, memory_mb, None, None, (), None, None)
        requests = [replace(plain, stdin=item) for item in inputs]
        results: list[ExecResult] = []
        threads = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="sandbox-map")
        stop = Stop()
        try:
            futures = [threads.submit(self._choose(request, None).run, request, stop=stop) for request in requests]
            for future in futures:
                results.append(future.result())
                if progress is not None:
                    progress(len(results), len(requests))
        except BaseException:
            # Ctrl-C, or a progress callback that failed: nobody will see the others, so they are not waited for.
            stop.set()
            raise
        finally:
            threads.shutdown(cancel_futures=True)
            stop.close()
        return results

    def session(
        self,
        language: str | Language = Language.PYTHON,
        *,
        name: str | None = None,
        memory_mb: int = 512,
        checkpoints: int = 5,
        python: str | None = None,
        limits: Limits | None = None,
        backend: str | None = None,
        files: Mapping[str, bytes | str] | None = None,
    ) -> Session:
        """Open a session: state lives on from run to run, and a run that is stopped is taken back.

        Its work folder is shared, between cells, with the sandbox's runs and other sessions; ``files`` are put there.
        With ``backend="wasm"`` it can also be forked (``s.fork()``) and saved (``s.save(path)``).
        """
        self._check_alive()
        chosen = _known_backend(backend) if backend is not None else self._default
        if chosen == "dask":
            raise InvalidRequest("sessions live on this machine, not on a cluster; use backend='process' or 'wasm'")
        for path, data in _named(files).items():
            self.write_file(path, data)
        if chosen == "wasm":
            if python is not None:
                raise InvalidRequest("python chooses an interpreter of the host, which backend='wasm' does not run")
            from sandbox_kernel.session.wasm_opening import open_wasm_session

            return open_wasm_session(
                self._wasm_backend(),
                language,
                name=name,
                memory_mb=memory_mb,
                checkpoints=checkpoints,
                limits=limits,
                on_open=self._sessions.add,
                share=self._folder.link(),
            )
        from sandbox_kernel.session.opening import open_session

        opened = open_session(
            self.backend,
            language,
            name=name,
            memory_mb=memory_mb,
            checkpoints=checkpoints,
            python=python,
            limits=limits,
            share=self._folder.link(),
            chosen=self._why(Language.parse(language), backend),
        )
        self._sessions.add(opened)
        return opened

    def is_ready(self, language: str | Language, *, check: bool = False, session: bool = False) -> bool:
        """Whether the first run or ``session`` in a language has nothing to wait for; see ``prepare``."""
        self._check_alive()
        if self._default != "wasm":
            return True
        return self._wasm_backend(check).is_ready(Language.parse(language), session=session)

    def prepare(self, language: str | Language, *, check: bool = False, on_progress: OnPrepare | None = None) -> None:
        """Make ready what WebAssembly needs for a language, once on this machine: seconds to minutes.

        The first run does the same, before its clock starts; ``on_progress`` hears how far it is, on this thread.
        """
        self._check_alive()
        if self._default == "wasm":
            self._wasm_backend(check).make_ready(Language.parse(language), on_progress)

    load_session = _LoadSession()

    def _load_session(self, path: str | os.PathLike[str], *, name: str | None = None) -> Session:
        self._check_alive()
        from sandbox_kernel.session.wasm_opening import load_wasm_session

        return load_wasm_session(
            self._wasm_backend(), path, name=name, on_open=self._sessions.add, share=self._folder.link()
        )

    def report(
        self,
        *,
        again: bool = False,
        fresh: bool = False,
        require: Iterable[str] = (),
        on_progress: OnProgress | None = None,
        backend: str | None = None,
    ) -> CapabilityReport:
        """What is enforced here, measured in the jail that is really used; kept until the next boot.

        ``again`` (or ``fresh``) measures anew. ``require`` names areas or lines that must be enforced, else
        ``PolicyViolation`` quotes the one that is not. ``on_progress`` hears how many canaries of how many are back.
        ``backend`` is whose walls they are, the sandbox's own if it is not given; processes for ``auto``.
        """
        self._check_alive()
        if isinstance(require, str):
            raise InvalidRequest(f"require takes a list of areas or lines, got {require!r}; write [{require!r}]")
        from sandbox_kernel.report import make_report, summed_report

        name = _known_backend(backend) if backend is not None else self._default
        if name == "wasm":
            wasm = self._wasm_backend()
            wasm.measure(again=again or fresh, on_progress=on_progress)
            report = summed_report(wasm, weaknesses=wasm.enforcer.weaknesses).require(*require)
            return replace(report, again=lambda told: self.report(again=True, on_progress=told, backend="wasm"))
        if name == "dask":
            report = summed_report(self._dask_backend(self.backend.config), host="a worker of the cluster")
            return report.require(*require)
        return make_report(self.backend, again=again or fresh, on_progress=on_progress).require(*require)

    def fetch(
        self,
        url: FetchRequest | str,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
        body: bytes | str | None = None,
    ) -> FetchResponse:
        """Fetch a URL from the host under this sandbox's network rules; private addresses stay refused.

        A status of 400 and more is a response. ``FetchError`` names the rule that refused; ``NetworkingDisabled`` means
        that the policy allows nothing.
        """
        return self._fetcher(url).fetch(_fetch_request(url, method, headers, body))

    async def afetch(
        self,
        url: FetchRequest | str,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
        body: bytes | str | None = None,
    ) -> FetchResponse:
        """The same, on the caller's event loop; cancelling it closes the connection."""
        return await self._fetcher(url).afetch(_fetch_request(url, method, headers, body))

    def _fetcher(self, url: FetchRequest | str) -> SafeClient:
        """One client for the life of the sandbox, so that its rate limit counts all fetches."""
        self._check_alive()
        if not self.policy.network and not self.policy.network_rules:
            asked = getattr(url, "url", url)
            raise NetworkingDisabled(
                f"networking disabled: {quoted(asked)} cannot be fetched; allow it with policy.allow_domain(…) first"
            )
        if self._client is None:
            from sandbox_kernel.net.fetch_policy import FetchPolicy

            self._client = self._egress.client(FetchPolicy.from_sandbox_policy(self.policy))
        return self._client

    def destroy(self) -> None:
        """End everything that this sandbox holds; every later call raises ``SandboxDestroyed``."""
        self._destroyed = True
        for session in list(self._sessions):
            session.close()
        if self._owns_folder:
            self._folder.close()
        wait_buried()

    def _choose(
        self, request: ExecRequest, backend: str | None, check: bool = False, python: str | None = None
    ) -> ProcessBackend | WasmBackend | DaskBackend:
        """The backend of a run: the one asked for, else wasm for wasm and processes for everything else."""
        name = _known_backend(backend) if backend is not None else self._default
        if check and request.language is not Language.TYPESCRIPT:
            raise InvalidRequest(f"check is for typescript, not for {request.language}; leave it out")
        if python is not None and request.language is not Language.PYTHON:
            raise InvalidRequest(f"python={python!r} is for python, not for {request.language}; leave it out")
        if python is not None and name == "wasm":
            raise InvalidRequest("python chooses an interpreter of the host, which backend='wasm' does not run")
        if name == "wasm":
            return self._wasm_backend(check)
        if check or python is not None:
            # Backends are cheap: spares and capabilities are shared by all of a process.
            config = replace(self.backend.config, check_types=check)
            config = config if python is None else replace(config, python_path=python)
            return self._dask_backend(config) if name == "dask" else self._process_backend(config)
        if name == "dask":
            return self._dask_backend(self.backend.config)
        if name == "auto" and request.language is Language.WASM:
            return self._wasm_backend()
        return self.backend

    def _why(self, language: Language, backend: str | None) -> str:
        """Why a run is where it is, for its receipt; empty when somebody named the backend."""
        if (backend if backend is not None else self._default) != "auto":
            return ""
        if language is Language.WASM:
            return "backend 'auto' took wasm: modules of WebAssembly run nowhere else"
        return f"backend 'auto' took process: {language} runs at full speed there; 'wasm' is the second wall"

    def _process_backend(self, config: ProcessConfig | None) -> ProcessBackend:
        return ProcessBackend(config, policy=self.policy, proxy=self._egress.proxy)

    def _dask_backend(self, config: ProcessConfig) -> DaskBackend:
        if self._egress.special and (self.policy.network or self.policy.network_rules):
            raise InvalidRequest(
                "audit, allow_private_for and resolver are of this machine, and the network of backend='dask' is its "
                "workers'; leave them out, or use backend='process'"
            )
        from sandbox_kernel.backends.dask import DaskBackend

        return DaskBackend(config=config, policy=self.policy)

    def _wasm_backend(self, check: bool = False) -> WasmBackend:
        from sandbox_kernel.backends.wasm import WasmBackend  # its engine is heavy and rarely needed

        size, client = self.backend.config.pool_size, self._egress.client
        if check or self.backend.config.check_types:
            return WasmBackend(
                policy=self.policy, pool_size=size, check_types=True, on_progress=self.on_prepare, client=client
            )
        if self._wasm is None:
            self._wasm = WasmBackend(policy=self.policy, pool_size=size, on_progress=self.on_prepare, client=client)
        return self._wasm

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
            files={**self._folder.files(), **_named(files)},
            limits=Limits.given(limits),
        )


def _fetch_request(
    url: FetchRequest | str,
    method: str,
    headers: Mapping[str, str] | Iterable[tuple[str, str]],
    body: bytes | str | None,
) -> FetchRequest:
    from sandbox_kernel.net.messages import FetchRequest

    if not isinstance(url, FetchRequest):
        return FetchRequest(url=url, method=method, headers=headers, body=body)
    if method != "GET" or headers or body is not None:
        raise InvalidRequest("a FetchRequest has its own method, headers and body; give them there")
    return url


def _descriptor(given: object) -> int:
    """Where a file can be read from outside of Python, or why it cannot."""
    try:
        return int(given.fileno())  # type: ignore[attr-defined]
    except (AttributeError, OSError, ValueError):
        raise InvalidRequest(
            f"stdin must be text, bytes or a file that is open for reading bytes, got {quoted(given)}"
        ) from None


def _named(files: Mapping[str, bytes | str] | None) -> Mapping[str, bytes | str]:
    if files is not None and not isinstance(files, Mapping):
        raise InvalidRequest(f"files must be a mapping of names to contents, got {quoted(files)}")
    return files or {}


def _check_workers(max_workers: int | None) -> int:
    """How many runs of a ``map`` may be under way at once."""
    if max_workers is None:
        return 4
    if isinstance(max_workers, bool) or not isinstance(max_workers, int) or max_workers < 1:
        raise InvalidRequest(f"max_workers must be a whole number of at least 1, got {quoted(max_workers)}")
    return min(max_workers, MOST_WORKERS)


def _known_backend(name: str) -> str:
    if name not in BACKENDS:
        raise InvalidRequest(f"unknown backend {quoted(name)}; expected one of: {', '.join(BACKENDS)}")
    return name
