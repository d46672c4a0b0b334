"""Opens sessions on the process backend: checks the arguments, builds walls and limits, starts the worker."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import replace

from sandbox_kernel.backends.checks import host_trouble
from sandbox_kernel.backends.functions.call_server import CallServer
from sandbox_kernel.backends.functions.host_function import HostFunctions
from sandbox_kernel.backends.functions.inside import command_file, with_command
from sandbox_kernel.backends.process import ProcessBackend, shared_pool
from sandbox_kernel.errors import InvalidRequest, PolicyViolation, SandboxError
from sandbox_kernel.jail.accounting.cgroups import find_hierarchies
from sandbox_kernel.jail.gate_messages import Step
from sandbox_kernel.jail.interpreter import find_python, interpreter_name
from sandbox_kernel.jail.jail import Jail
from sandbox_kernel.jail.run_job import OWN_PROCESSES
from sandbox_kernel.jail.template import NoLayer
from sandbox_kernel.jail.walls import Places
from sandbox_kernel.languages.interpreters import shell
from sandbox_kernel.languages.recipe import rlimits, search_path
from sandbox_kernel.limits import DEFAULT_CHECKPOINTS, DEFAULT_SESSION_MEMORY_MB, MIB, Limits, check_memory_mb
from sandbox_kernel.model import Language
from sandbox_kernel.session.cell.request import SessionSpec
from sandbox_kernel.session.language_workers import ENGINES, session_walls
from sandbox_kernel.session.python_state import PythonSession
from sandbox_kernel.session.session import Session
from sandbox_kernel.session.session_rights import SessionRights
from sandbox_kernel.session.supervisor import WorkerSupervisor
from sandbox_kernel.session.worker.gate_client import GateLost
from sandbox_kernel.session.worker.jailed_worker import JailedWorker
from sandbox_kernel.session.worker.memory_budget import can_be_sealed, spare_processes
from sandbox_kernel.util.values import dataclass
from sandbox_kernel.workspace.folder_link import FolderLink
from sandbox_kernel.workspace.overlay.session_layer import SessionLayer

#: How many times the session's first memory limit a cell may be given, where a control group enforces the limit: the
#: worker's ``rlimits`` are fixed when it starts.
GROWTH = 4
_numbers = itertools.count(1)


def has_sessions(language: Language, backend: str | None = None) -> bool:
    """Whether a language has sessions on a backend; without them every run is fresh."""
    if backend == "dask":
        return False
    return language is Language.JAVASCRIPT if backend == "wasm" else language in ENGINES


def only_when_named(language: Language, backend: str | None) -> bool:
    """Whether sessions must be asked for by name: the larger Python of WebAssembly may give other results."""
    return backend == "wasm" and language is Language.PYTHON


def open_session(
    backend: ProcessBackend,
    language: str | Language = Language.PYTHON,
    *,
    name: str | None = None,
    memory_mb: int = DEFAULT_SESSION_MEMORY_MB,
    checkpoints: int = DEFAULT_CHECKPOINTS,
    python: str | None = None,
    limits: Limits | None = None,
    share: FolderLink | None = None,
    chosen: str = "",
    functions: HostFunctions | None = None,
) -> Session:
    """Open a session with a backend's policy. Wrong arguments raise before anything starts.

    ``python``: the Python interpreter of the worker; None takes the backend's. ``share``: the link to the box's shared
    folder. ``chosen``: why this backend was chosen, for the receipt. ``functions``: host functions that the cells may
    call. Raises ``InvalidRequest``, ``PolicyViolation`` (a command session without the right to start processes) or
    ``BackendUnavailable`` (this host lacks a program that the session needs).
    """
    spoken = Language.parse(language)
    engine = ENGINES.get(spoken)
    if engine is None:
        known = ", ".join(ENGINES)
        raise InvalidRequest(f"there are no sessions for {spoken}; expected one of: {known}, or run it with box.run")
    check_memory_mb(memory_mb)
    if memory_mb < engine.minimum_mb:
        raise InvalidRequest(f"a {spoken} session needs at least {engine.minimum_mb} MB of memory, got {memory_mb}")
    limit = Limits.given(limits)
    spec = SessionSpec(
        name=f"{spoken}-{next(_numbers)}" if name is None else name,
        language=spoken,
        memory_mb=memory_mb,
        checkpoints=checkpoints,
        limits=limit,
        grace_s=engine.grace_s,
        cell_memory_mb=memory_mb * (GROWTH if engine.grows and find_hierarchies() is not None else 1),
        backend=backend.name,
        isolation=backend.isolation_class,
        chosen=chosen,
        network_notes=backend.network_notes,
    )
    if spoken is Language.COMMAND and not backend.policy.process_spawn:
        raise PolicyViolation(
            "a command session starts a shell for each cell, and the policy denies starting processes; "
            "allow it with policy.allow_process_spawn(), or run single commands with box.run"
        )
    opening = _Opening(backend, spec, python, share, functions)
    return opening.python_session() if spoken is Language.PYTHON else Session(opening.supervisor())


@dataclass
class _Opening:
    """Everything that is needed to start the worker of a session, the first time and after a crash."""

    backend: ProcessBackend
    spec: SessionSpec
    python: str | None
    share: FolderLink | None
    functions: HostFunctions | None

    def __post_init__(self) -> None:
        config, spec = self.backend.config, self.spec
        self._engine = ENGINES[spec.language]
        self._engine.check(config)
        self._python = find_python(interpreter_name(self.python) if self.python is not None else config.python_path)
        self._here = self.share.here if self.share is not None else None
        self._walls = session_walls(self.backend, self._engine, self._python, spec.limits, spec.memory_mb)

    def supervisor(self) -> WorkerSupervisor:
        """Start the first worker, and return what replaces it."""
        return WorkerSupervisor(self.spec, self.begin, self.share, SessionRights(self.backend))

    def python_session(self) -> PythonSession:
        """Open a Python session, which can open copies of itself."""
        return PythonSession(self.supervisor(), self._open_copy)

    def _open_copy(self, name: str | None) -> PythonSession:
        share = FolderLink(self.share.folder) if self.share is not None else None
        spec = replace(self.spec, name=f"{self.spec.language}-{next(_numbers)}" if name is None else name)
        return replace(self, spec=spec, share=share).python_session()

    @host_trouble()
    def begin(self) -> JailedWorker:
        """Start a worker."""
        spec, engine, functions = self.spec, self._engine, self.functions
        jail = self._take_jail()
        try:
            worker = JailedWorker(
                jail,
                spec.checkpoints,
                spec.memory_mb * MIB,
                spec.limits.processes,
                can_be_sealed(self._walls.enforcer),
                self.backend.egress().__enter__(),
                CallServer(functions) if functions is not None else None,
                engine.looks,
            )
        except BaseException:
            jail.destroy()
            raise
        with destroyed_if_not_started(worker, lambda said, error: engine.start_failure(self._python, said, error)):
            step = self._step(jail.places)
            if self._here is not None:
                step = replace(step, env={**step.env, "HOME": jail.places.tmp})
                if jail.layer_fd >= 0:
                    worker.layer = SessionLayer(self._here, jail.box_fd, jail.layer_fd, jail.settings_fd)
                    worker.copies.close()
                    worker.copies = worker.layer
            files = engine.files(jail.places, spec.checkpoints)
            if functions is not None:
                step = replace(step, env=with_command(step.env, jail.places))
                files = (*files, command_file(jail.places, self._python.executable))
            worker.start(step, files)
        return worker

    def _take_jail(self) -> Jail:
        """Take a jail: with a layer over the user's folder, or without one where that is not possible."""
        pool, walls, here = shared_pool(self.backend.config.pool_size), self._walls, self._here
        if here is not None and self.share is not None:
            try:
                return pool.take(replace(walls, here=here.path, here_id=here.project.identity()), lasts=True)
            except NoLayer as error:
                self.share.why_copied = str(error)
        return pool.take(walls, lasts=True)

    def _step(self, places: Places) -> Step:
        """Return the gate's order to start the worker: module, arguments, environment and limits."""
        backend, engine, spec, enforcer = self.backend, self._engine, self.spec, self._walls.enforcer
        processes = spec.limits.processes + OWN_PROCESSES + spare_processes(spec.checkpoints)
        env = {
            **places.environment(search_path(self._python.executable), places.work),
            "SHELL": shell(),
            # Caches are not the user's work: they stay out of the work folder, which is scanned and shared.
            "XDG_CACHE_HOME": f"{places.tmp}/.cache",
            **engine.environment(places, spec.checkpoints),
            **backend.network_env(),
            **backend.policy.env,
        }
        return Step(
            kind="session",
            argv=[engine.module, *engine.arguments(backend.config, places, spec.memory_mb, spec.checkpoints)],
            cwd=places.work,
            env=env,
            rlimits=rlimits(
                enforcer,
                # The worker outlives its cells, so its own CPU time is not limited; each cell's is, by the host.
                replace(spec.limits, cpu_seconds=None),
                spec.memory_mb,
                processes=processes,
                reserved_mb=engine.reserved_mb,
            ),
            seccomp=backend.step_filter(host_decides=spec.checkpoints > 0),
            asks_to_fork=spec.checkpoints > 0 and not backend.policy.process_spawn,
            no_stdin=True,
        )


@contextlib.contextmanager
def destroyed_if_not_started(
    worker: JailedWorker, failure: Callable[[str, BaseException], SandboxError]
) -> Iterator[None]:
    """Destroy a worker whose start fails; ``failure`` makes the error, from what it printed to stderr and the cause."""
    try:
        yield
    except (SandboxError, GateLost) as error:
        said = b""
        with contextlib.suppress(OSError):
            said = os.read(worker.jail.stderr_fd, 1 << 16)
        worker.destroy()
        raise failure(said.decode("utf-8", "replace").strip(), error) from None
    except BaseException:
        worker.destroy()
        raise
