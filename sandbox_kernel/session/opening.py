"""How a session comes into being: which walls, which worker, which limits. Called by the facade."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable

from sandbox_kernel.backends.process import ProcessBackend, shared_pool
from sandbox_kernel.errors import BackendUnavailable, InvalidRequest, SandboxError
from sandbox_kernel.jail import seccomp
from sandbox_kernel.jail.cgroup import find_hierarchies
from sandbox_kernel.jail.control import Step
from sandbox_kernel.jail.interpreter import Interpreter, find_python
from sandbox_kernel.jail.jail import Jail
from sandbox_kernel.jail.job import OWN_PROCESSES
from sandbox_kernel.jail.start import has_own_disk, process_rlimit
from sandbox_kernel.jail.walls import TMP, Places, Walls, sizes
from sandbox_kernel.languages.command import shell
from sandbox_kernel.languages.recipe import SYSTEM_PATH, rlimits
from sandbox_kernel.limits import MIB, Limits, check_memory_mb
from sandbox_kernel.model import Language
from sandbox_kernel.policy import resolve_grants
from sandbox_kernel.session.fonts import FOLDER as FONTS
from sandbox_kernel.session.fonts import font_lists
from sandbox_kernel.session.keeper import GateLost
from sandbox_kernel.session.live import Live
from sandbox_kernel.session.lives import SessionSpec
from sandbox_kernel.session.result import Frame
from sandbox_kernel.session.session import Session

#: How long a cell may go on after an interrupt before it is rolled back.
GRACE_S = 2.0
#: More frozen copies than this help nobody.
MAX_CHECKPOINTS = 100
_MINIMUM_MB = {Language.PYTHON: 64, Language.COMMAND: 32}
#: The guest module that is a language's worker.
_WORKERS = {Language.PYTHON: "sandbox_guest.python_session", Language.COMMAND: "sandbox_guest.shell_session"}
#: Native thread pools do not survive a fork, and checkpoints are forks. The policy's environment may say otherwise.
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "BLIS_NUM_THREADS")
_numbers = itertools.count(1)


def has_sessions(language: Language) -> bool:
    """Whether a language can keep its state from run to run; the others are always fresh."""
    return language in _WORKERS


def open_session(
    backend: ProcessBackend,
    language: str | Language = Language.PYTHON,
    *,
    name: str | None = None,
    memory_mb: int = 512,
    checkpoints: int = 5,
    python: str | None = None,
    limits: Limits | None = None,
    on_close: Callable[[], None] | None = None,
) -> Session:
    """Open a session behind a backend's walls and policy; bad input is a typed error before anything starts."""
    spoken = Language.parse(language)
    if spoken not in _WORKERS:
        known = ", ".join(_WORKERS)
        raise InvalidRequest(f"there are no sessions for {spoken}; expected one of: {known}, or run it with box.run")
    check_memory_mb(memory_mb)
    least = _MINIMUM_MB[spoken]
    if memory_mb < least:
        raise InvalidRequest(f"a {spoken} session needs at least {least} MB of memory, got {memory_mb}")
    if isinstance(checkpoints, bool) or not isinstance(checkpoints, int) or not 0 <= checkpoints <= MAX_CHECKPOINTS:
        raise InvalidRequest(f"checkpoints must be between 0 and {MAX_CHECKPOINTS}, got {checkpoints!r}")
    if name is not None and (not isinstance(name, str) or not name.strip() or len(name) > 100):
        raise InvalidRequest(f"a session's name must be a short text, got {name!r:.120}")
    if spoken is Language.COMMAND and not shell().endswith("bash"):
        raise BackendUnavailable("a command session needs bash, and this host has none; install the package 'bash'")
    interpreter = find_python(python if python is not None else backend.config.python_path)
    limit = limits or Limits()
    walls = session_walls(backend, interpreter, spoken, limit, memory_mb)
    spec = SessionSpec(
        name=name or f"{spoken}-{next(_numbers)}",
        language=spoken,
        memory_mb=memory_mb,
        checkpoints=checkpoints,
        limits=limit,
        grace_s=GRACE_S,
        frame=Frame(language=str(spoken), backend=backend.name, isolation=backend.isolation_class, memory_mb=memory_mb),
    )

    def begin() -> Live:
        jail = shared_pool(backend.config.pool_size).take(walls)
        live = Live(jail, checkpoints, memory_mb * MIB, limit.processes, backend.egress().__enter__())
        try:
            step = session_step(backend, interpreter, spoken, limit, memory_mb, checkpoints, jail.places)
            live.start(step, font_lists(f"{jail.places.tmp}/{FONTS}") if spoken is Language.PYTHON else ())
        except (SandboxError, GateLost) as error:
            said = last_words(jail)
            live.destroy()
            raise _start_failure(spoken, interpreter, said, error) from None
        except BaseException:
            live.destroy()
            raise
        return live

    return Session(spec, begin, on_close)


def session_walls(
    backend: ProcessBackend, interpreter: Interpreter, language: Language, limits: Limits, memory_mb: int
) -> Walls:
    """The walls of a session: those of a run, and a worker that waits ready-made behind them."""
    preload = ("site", _WORKERS[language], *(backend.config.preload if language is Language.PYTHON else ()))
    backend.check_network()
    grants = resolve_grants(backend.policy)
    enforcer = backend.enforcer.name if backend.enforcer is not None else None
    return Walls(
        interpreter.executable,
        interpreter.runtime,
        grants,
        *sizes(limits, memory_mb),
        preload,
        enforcer=enforcer,
    )


def session_step(
    backend: ProcessBackend,
    interpreter: Interpreter,
    language: Language,
    limits: Limits,
    memory_mb: int,
    checkpoints: int,
    places: Places,
) -> Step:
    """The order for the gate: become this worker, with this environment and these limits."""
    enforcer = backend.enforcer.name if backend.enforcer is not None else None
    env = {
        "PATH": f"{os.path.dirname(interpreter.executable)}:{SYSTEM_PATH}",
        "HOME": places.work,
        "LANG": "C.UTF-8",
        "SHELL": shell(),
        **({} if places.tmp == TMP else {"TMPDIR": places.tmp}),
        **(_python_environment(places, checkpoints) if language is Language.PYTHON else {}),
        **backend.policy.env,
    }
    return Step(
        kind="session",
        argv=[_WORKERS[language], places.cell],
        cwd=places.work,
        env=env,
        rlimits=rlimits(
            limits,
            memory_mb,
            own_disk=has_own_disk(enforcer),
            exact_memory=find_hierarchies() is not None,
            processes=process_rlimit(enforcer, limits.processes + OWN_PROCESSES + checkpoints + 3),
        ),
        seccomp=None if backend.policy.process_spawn else seccomp.build_no_spawn_filter(seccomp.host_arch()),
        no_stdin=True,
    )


def _python_environment(places: Places, checkpoints: int) -> dict[str, str]:
    return {
        "IPYTHONDIR": f"{places.tmp}/.ipython",
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "MPLCONFIGDIR": f"{places.tmp}/{FONTS}",
        **(dict.fromkeys(_ONE_THREAD, "1") if checkpoints else {}),
    }


def last_words(jail: Jail) -> str:
    """What a worker that did not start has printed."""
    try:
        return os.read(jail.stderr_fd, 1 << 16).decode("utf-8", "replace").strip()
    except OSError:
        return ""


def _start_failure(language: Language, python: Interpreter, said: str, error: BaseException) -> SandboxError:
    if "No module named 'IPython'" in said:
        return BackendUnavailable(
            f"a Python session needs IPython in the environment of {python.executable}; "
            f"install it there: {python.executable} -m pip install ipython"
        )
    return BackendUnavailable(f"the {language} session did not start: {said[-500:] or error}")
