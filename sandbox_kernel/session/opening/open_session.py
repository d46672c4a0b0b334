"""How a session comes into being: which walls, which worker, which limits. Called by the facade."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from dataclasses import replace

from sandbox_kernel.backends.host_failures import host_trouble
from sandbox_kernel.backends.process import ProcessBackend, shared_pool
from sandbox_kernel.errors import InvalidRequest, PolicyViolation, SandboxError
from sandbox_kernel.jail.cgroups.cgroup import find_hierarchies
from sandbox_kernel.jail.core.gate_messages import Step
from sandbox_kernel.jail.core.interpreter import Interpreter, find_python, interpreter_name
from sandbox_kernel.jail.core.jail import Jail
from sandbox_kernel.jail.core.job import OWN_PROCESSES
from sandbox_kernel.jail.core.walls import TMP, Places, Walls, sizes
from sandbox_kernel.jail.start import has_own_disk, process_rlimit
from sandbox_kernel.languages.command import shell
from sandbox_kernel.languages.support.guest_catalogue import catalogue
from sandbox_kernel.languages.support.recipe import rlimits, search_path
from sandbox_kernel.limits import DEFAULT_SESSION_MEMORY_MB, MIB, Limits, check_memory_mb
from sandbox_kernel.model import Language
from sandbox_kernel.policy import resolve_grants
from sandbox_kernel.session.cell.cell_result import Frame
from sandbox_kernel.session.opening.language_workers import ENGINES, Engine
from sandbox_kernel.session.opening.spec import SessionSpec
from sandbox_kernel.session.session import Session
from sandbox_kernel.session.worker.checkpoints import room_beside_cells
from sandbox_kernel.session.worker.gate_client import GateLost
from sandbox_kernel.session.worker.memory_budget import can_be_sealed
from sandbox_kernel.session.worker.worker import JailedWorker
from sandbox_kernel.workspace.shared_folder import FolderLink

#: More frozen copies than this help nobody.
MAX_CHECKPOINTS = 100
#: How much more memory a cell may be given than its session began with, where a control group counts: what the kernel
#: allows each process by itself (``rlimits``) is fixed when the worker starts.
GROWTH = 4
#: Languages whose state is the memory of one guest inside WebAssembly (``open_wasm.py``).
WASM_LANGUAGES = (Language.JAVASCRIPT, Language.PYTHON)
_numbers = itertools.count(1)


def has_sessions(language: Language, backend: str | None = None) -> bool:
    """Whether a language keeps its state from run to run on a backend; the others are always fresh."""
    if backend == "dask":
        return False
    return language is Language.JAVASCRIPT if backend == "wasm" else language in ENGINES


def only_when_named(language: Language, backend: str | None) -> bool:
    """Whether a language keeps its state on a backend when somebody asks for a session by name.

    So it is with Python inside WebAssembly: its guest there is another, larger Python, which must have been prepared,
    and what a plain cell shows must not depend on that.
    """
    return backend == "wasm" and language is Language.PYTHON


def least_memory_mb(language: Language) -> int:
    """With less than this no session of a language begins."""
    return ENGINES[language].minimum_mb


def science_is_ready() -> bool:
    """Whether Python sessions can begin in WebAssembly: their guest is made beforehand or not at all."""
    from sandbox_kernel.backends.wasm.prepare import guest_name, switches_of
    from sandbox_kernel.backends.wasm.store import WasmStore

    guest = catalogue()[Language.PYTHON].session
    return guest is not None and WasmStore().has(guest_name(guest, switches_of(guest, fuel=False)))


def session_languages() -> tuple[Language, ...]:
    """Every language that can keep its state on processes of the host."""
    return tuple(ENGINES)


def open_session(
    backend: ProcessBackend,
    language: str | Language = Language.PYTHON,
    *,
    name: str | None = None,
    memory_mb: int = DEFAULT_SESSION_MEMORY_MB,
    checkpoints: int = 5,
    python: str | None = None,
    limits: Limits | None = None,
    on_close: Callable[[], None] | None = None,
    share: FolderLink | None = None,
    chosen: str = "",
) -> Session:
    """Open a session behind a backend's walls and policy; bad input is a typed error before anything starts."""
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
            chosen=chosen,
            network_notes=backend.network_notes,
        ),
    )

    @host_trouble()
    def begin() -> JailedWorker:
        jail = shared_pool(backend.config.pool_size).take(walls)
        try:
            proxy = backend.egress().__enter__()
            sealed = can_be_sealed(walls.enforcer)
            live = JailedWorker(jail, checkpoints, memory_mb * MIB, limit.processes, proxy, sealed=sealed)
        except BaseException:
            jail.destroy()
            raise
        try:
            step = session_step(backend, interpreter, engine, limit, memory_mb, checkpoints, jail.places)
            live.start(step, engine.files(jail.places, checkpoints))
        except (SandboxError, GateLost) as error:
            said = last_words(jail)
            live.destroy()
            raise engine.start_failure(interpreter, said, error) from None
        except BaseException:
            live.destroy()
            raise
        return live

    return Session(spec, begin, on_close, share)


def session_walls(
    backend: ProcessBackend, interpreter: Interpreter, engine: Engine, limits: Limits, memory_mb: int
) -> Walls:
    """The walls of a session: those of a run, and a worker that waits ready-made behind them."""
    backend.check_network()
    grants = resolve_grants(backend.policy)
    enforcer = backend.enforcer.name if backend.enforcer is not None else None
    return Walls(
        interpreter.executable,
        tuple(dict.fromkeys((*interpreter.runtime, *engine.runtime(backend.config)))),
        grants,
        *sizes(limits, memory_mb),
        engine.preload(backend.config),
        enforcer=enforcer,
        templates=backend.config.templates,
    )


def session_step(
    backend: ProcessBackend,
    interpreter: Interpreter,
    engine: Engine,
    limits: Limits,
    memory_mb: int,
    checkpoints: int,
    places: Places,
) -> Step:
    """The order for the gate: become this worker, with this environment and these limits."""
    enforcer = backend.enforcer.name if backend.enforcer is not None else None
    env = {
        "PATH": search_path(interpreter.executable),
        "HOME": places.work,
        "LANG": "C.UTF-8",
        "SHELL": shell(),
        # What programs cache is no work of the user's: it stays out of the folder that is watched and shared.
        "XDG_CACHE_HOME": f"{places.tmp}/.cache",
        **({} if places.tmp == TMP else {"TMPDIR": places.tmp}),
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
            # The worker lives longer than any cell: its CPU time is not a cell's, which is counted for each.
            replace(limits, cpu_seconds=None),
            memory_mb,
            own_disk=has_own_disk(enforcer),
            exact_memory=find_hierarchies() is not None,
            processes=process_rlimit(enforcer, limits.processes + OWN_PROCESSES + room_beside_cells(checkpoints)),
            reserved_mb=engine.reserved_mb,
        ),
        seccomp=backend.step_filter(),
        no_stdin=True,
    )


def last_words(jail: Jail) -> str:
    """What a worker that did not start has printed."""
    try:
        return os.read(jail.stderr_fd, 1 << 16).decode("utf-8", "replace").strip()
    except OSError:
        return ""
