"""Opens sessions on the process backend: checks the arguments, builds walls and limits, starts the worker."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from dataclasses import replace

from sandbox_kernel.backends.checks import host_trouble
from sandbox_kernel.backends.functions.call_server import CallServer
from sandbox_kernel.backends.functions.host_function import HostFunctions
from sandbox_kernel.backends.functions.inside import command_file, with_command
from sandbox_kernel.backends.process import ProcessBackend, shared_pool
from sandbox_kernel.errors import InvalidRequest, PolicyViolation, SandboxError
from sandbox_kernel.jail.accounting.cgroups import find_hierarchies
from sandbox_kernel.jail.accounting.gpu_meter import check_gpu_limit
from sandbox_kernel.jail.enforcer import has_own_disk, process_rlimit
from sandbox_kernel.jail.gate_messages import Step
from sandbox_kernel.jail.interpreter import Interpreter, find_python, interpreter_name
from sandbox_kernel.jail.jail import Jail
from sandbox_kernel.jail.pool import Pool
from sandbox_kernel.jail.run_job import OWN_PROCESSES
from sandbox_kernel.jail.template import NoLayer
from sandbox_kernel.jail.walls import Places, Walls, sizes, with_gpu
from sandbox_kernel.languages.guest_catalogue import catalogue
from sandbox_kernel.languages.interpreters import shell
from sandbox_kernel.languages.recipe import rlimits, search_path
from sandbox_kernel.limits import DEFAULT_CHECKPOINTS, DEFAULT_SESSION_MEMORY_MB, MIB, Limits, check_memory_mb
from sandbox_kernel.model import Language
from sandbox_kernel.session.cell.cell_result import Frame
from sandbox_kernel.session.opening.language_workers import ENGINES, Engine
from sandbox_kernel.session.opening.python_state import PythonSession
from sandbox_kernel.session.opening.spec import SessionSpec
from sandbox_kernel.session.session import Session
from sandbox_kernel.session.session_rights import SessionRights
from sandbox_kernel.session.worker.checkpoints import room_beside_cells
from sandbox_kernel.session.worker.gate_client import GateLost
from sandbox_kernel.session.worker.memory_budget import can_be_sealed
from sandbox_kernel.session.worker.worker import JailedWorker
from sandbox_kernel.workspace.box_folder import FolderLink
from sandbox_kernel.workspace.overlay.overlay_folder import HereFolder
from sandbox_kernel.workspace.overlay.session_layer import HereLink, SessionLayer

#: The most checkpoints that a session may keep.
MAX_CHECKPOINTS = 100
#: How many times the session's first memory limit a cell may be given, where a control group enforces the limit: the
#: worker's ``rlimits`` are fixed when it starts.
GROWTH = 4
#: Languages whose state is the memory of one guest inside WebAssembly (``open_wasm.py``).
WASM_LANGUAGES = (Language.JAVASCRIPT, Language.PYTHON)
_numbers = itertools.count(1)


def has_sessions(language: Language, backend: str | None = None) -> bool:
    """Whether a language has sessions on a backend; without them every run is fresh."""
    if backend == "dask":
        return False
    return language is Language.JAVASCRIPT if backend == "wasm" else language in ENGINES


def only_when_named(language: Language, backend: str | None) -> bool:
    """Whether a language has sessions on a backend only when the user asks for one by name.

    This is so for Python inside WebAssembly: its sessions use another, larger Python where that was prepared, and the
    result of a plain cell must not depend on that.
    """
    return backend == "wasm" and language is Language.PYTHON


def least_memory_mb(language: Language) -> int:
    """Return the smallest memory limit, in MB, of a session of a language."""
    return ENGINES[language].minimum_mb


def science_is_ready() -> bool:
    """Whether the large Python of sessions inside WebAssembly was prepared."""
    from sandbox_kernel.backends.wasm.prepare import guest_name, switches_of
    from sandbox_kernel.backends.wasm.store import WasmStore

    guest = catalogue()[Language.PYTHON].session
    return guest is not None and WasmStore().has(guest_name(guest, switches_of(guest, fuel=False)))


def session_languages() -> tuple[Language, ...]:
    """Return every language that has sessions on the process backend."""
    return tuple(ENGINES)


def open_session(
    backend: ProcessBackend,
    language: str | Language = Language.PYTHON,
    *,
    name: str | None = None,
    memory_mb: int = DEFAULT_SESSION_MEMORY_MB,
    checkpoints: int = DEFAULT_CHECKPOINTS,
    python: str | None = None,
    limits: Limits | None = None,
    on_close: Callable[[], None] | None = None,
    share: FolderLink | None = None,
    chosen: str = "",
    functions: HostFunctions | None = None,
) -> Session:
    """Open a session with a backend's policy. Wrong arguments raise before anything starts.

    Args:
        backend: gives policy, enforcer and configuration.
        language: the language of the cells.
        name: the session's name; None makes one.
        memory_mb: the memory limit in MB.
        checkpoints: how many cells back ``undo`` can go; 0 switches rollback off.
        python: the Python interpreter of the worker; None takes the backend's.
        limits: the other limits; None takes the defaults.
        on_close: called once when the session is closed.
        share: the link to the box's shared folder; None when the session shares no files.
        chosen: why this backend was chosen, for the receipt; empty when the user named it.
        functions: host functions that the cells may call; None for none.

    Raises:
        InvalidRequest: an argument is wrong, or the language has no sessions.
        PolicyViolation: a command session without the right to start processes.
        BackendUnavailable: this host lacks a program that the session needs.

    """
    spoken = Language.parse(language)
    engine = ENGINES.get(spoken)
    if engine is None:
        known = ", ".join(ENGINES)
        raise InvalidRequest(f"there are no sessions for {spoken}; expected one of: {known}, or run it with box.run")
    check_memory_mb(memory_mb)
    if memory_mb < engine.minimum_mb:
        raise InvalidRequest(f"a {spoken} session needs at least {engine.minimum_mb} MB of memory, got {memory_mb}")
    if isinstance(checkpoints, bool) or not isinstance(checkpoints, int) or not 0 <= checkpoints <= MAX_CHECKPOINTS:
        raise InvalidRequest(f"checkpoints must be between 0 and {MAX_CHECKPOINTS}, got {checkpoints!r}")
    if name is not None and (
        not isinstance(name, str) or not name.strip() or len(name) > 100 or not name.isprintable()
    ):
        raise InvalidRequest(f"a session's name must be a short text, got {name!r:.120}")
    if spoken is Language.COMMAND and not backend.policy.process_spawn:
        raise PolicyViolation(
            "a command session starts a shell for each cell, and the policy denies starting processes; "
            "allow it with policy.allow_process_spawn(), or run single commands with box.run"
        )
    engine.check(backend.config)
    interpreter = find_python(interpreter_name(python) if python is not None else backend.config.python_path)
    limit = Limits.given(limits)
    walls = session_walls(backend, interpreter, engine, limit, memory_mb)
    over = share if isinstance(share, HereLink) else None
    spec = SessionSpec(
        name=name or f"{spoken}-{next(_numbers)}",
        language=spoken,
        memory_mb=memory_mb,
        checkpoints=checkpoints,
        limits=limit,
        grace_s=engine.grace_s,
        cell_memory_mb=memory_mb * (GROWTH if engine.grows and find_hierarchies() is not None else 1),
        frame=Frame(
            language=str(spoken),
            backend=backend.name,
            isolation=backend.isolation_class,
            memory_mb=memory_mb,
            gpu_memory_mb=limit.gpu_memory_mb,
            chosen=chosen,
            network_notes=backend.network_notes,
        ),
    )

    @host_trouble()
    def begin() -> JailedWorker:
        jail = take_jail(shared_pool(backend.config.pool_size), walls, over)
        try:
            proxy = backend.egress().__enter__()
            sealed = can_be_sealed(walls.enforcer)
            calls = CallServer(functions) if functions is not None else None
            worker = JailedWorker(
                jail,
                checkpoints,
                memory_mb * MIB,
                limit.processes,
                proxy,
                sealed=sealed,
                calls=calls,
                looks=engine.looks,
            )
        except BaseException:
            jail.destroy()
            raise
        try:
            step = session_step(backend, interpreter, engine, limit, memory_mb, checkpoints, jail.places)
            if over is not None:
                step = replace(step, env={**step.env, "HOME": jail.places.tmp})
                worker.layer = session_layer(over.here, jail)
            files = engine.files(jail.places, checkpoints)
            if functions is not None:
                step = replace(step, env=with_command(step.env, jail.places))
                files = (*files, command_file(jail.places, interpreter.executable))
            worker.start(step, files)
        except (SandboxError, GateLost) as error:
            said = last_words(jail)
            worker.destroy()
            raise engine.start_failure(interpreter, said, error) from None
        except BaseException:
            worker.destroy()
            raise
        return worker

    rights = SessionRights(backend)
    if spoken is not Language.PYTHON:
        return Session(spec, begin, on_close, share, rights)

    def open_copy(other: str | None) -> PythonSession:
        copy = open_session(
            backend,
            spoken,
            name=other,
            memory_mb=memory_mb,
            checkpoints=checkpoints,
            python=python,
            limits=limits,
            share=share.another() if share is not None else None,
            chosen=chosen,
            functions=functions,
        )
        assert isinstance(copy, PythonSession)
        return copy

    return PythonSession(spec, begin, on_close, share, rights, open_copy)


def session_layer(folder: HereFolder, jail: Jail) -> SessionLayer | None:
    """Return the layer of a session's jail; None when it works on a private copy."""
    if jail.layer_fd < 0:
        return None
    return SessionLayer(folder, jail.box_fd, jail.layer_fd, jail.settings_fd)


def take_jail(pool: Pool, walls: Walls, over: HereLink | None) -> Jail:
    """Take a jail for a session: with a layer over the user's folder, or without one where that is not possible."""
    if over is None:
        return pool.take(walls, lasts=True)
    try:
        return pool.take(replace(walls, here=over.here.path, here_id=over.here.identity()), lasts=True)
    except NoLayer as error:
        over.why_copied = str(error)
        return pool.take(walls, lasts=True)


def session_walls(
    backend: ProcessBackend, interpreter: Interpreter, engine: Engine, limits: Limits, memory_mb: int
) -> Walls:
    """Return the walls of a session: those of a run, plus the modules that its worker imports in advance."""
    backend.check_network()
    check_gpu_limit(limits.gpu_memory_mb, backend.policy.gpu)
    grants = backend.grants.now()
    enforcer = backend.enforcer.name if backend.enforcer is not None else None
    walls = Walls(
        interpreter.executable,
        tuple(dict.fromkeys((*interpreter.runtime, *engine.runtime(backend.config)))),
        grants,
        *sizes(limits, memory_mb),
        engine.preload(backend.config),
        enforcer=enforcer,
        templates=backend.config.templates,
    )
    return with_gpu(walls, backend.policy.gpu)


def session_step(
    backend: ProcessBackend,
    interpreter: Interpreter,
    engine: Engine,
    limits: Limits,
    memory_mb: int,
    checkpoints: int,
    places: Places,
) -> Step:
    """Return the gate's order to start the worker: module, arguments, environment and limits."""
    enforcer = backend.enforcer.name if backend.enforcer is not None else None
    env = {
        "PATH": search_path(interpreter.executable),
        "HOME": places.work,
        "LANG": "C.UTF-8",
        "SHELL": shell(),
        # Caches are not the user's work: they stay out of the work folder, which is scanned and shared.
        "XDG_CACHE_HOME": f"{places.tmp}/.cache",
        **places.environment,
        **engine.environment(places, checkpoints),
        **backend.network_env(),
        **backend.policy.env,
    }
    return Step(
        kind="session",
        argv=[engine.module, *engine.arguments(backend.config, places, memory_mb, checkpoints)],
        cwd=places.work,
        env=env,
        rlimits=rlimits(
            # The worker outlives its cells, so its own CPU time is not limited; each cell's is, by the host.
            replace(limits, cpu_seconds=None),
            memory_mb,
            own_disk=has_own_disk(enforcer),
            exact_memory=find_hierarchies() is not None,
            processes=process_rlimit(enforcer, limits.processes + OWN_PROCESSES + room_beside_cells(checkpoints)),
            reserved_mb=engine.reserved_mb,
        ),
        seccomp=backend.step_filter(host_decides=checkpoints > 0),
        asks_to_fork=checkpoints > 0 and not backend.policy.process_spawn,
        no_stdin=True,
    )


def last_words(jail: Jail) -> str:
    """Return what a worker that did not start has printed to stderr."""
    try:
        return os.read(jail.stderr_fd, 1 << 16).decode("utf-8", "replace").strip()
    except OSError:
        return ""
