"""What each language's worker needs in its jail: module, environment, files. Plain data; starts nothing."""

from __future__ import annotations

import contextlib
import functools
import glob
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping

from sandbox_kernel.backends.process import ProcessBackend, ProcessConfig
from sandbox_kernel.errors import BackendUnavailable
from sandbox_kernel.jail.accounting.gpu_meter import check_gpu_limit
from sandbox_kernel.jail.gate_messages import JobFile
from sandbox_kernel.jail.guest_programs import guest_folder
from sandbox_kernel.jail.interpreter import Interpreter
from sandbox_kernel.jail.walls import Places, Walls, sizes, with_gpu
from sandbox_kernel.languages.c_family import REMEDY, find_zig
from sandbox_kernel.languages.compile_cache import CompileCache, Compiled, default_folder
from sandbox_kernel.languages.interpreters import shell
from sandbox_kernel.languages.node import OVERHEAD_MB, RESERVED_MB, find_node, node_runtime
from sandbox_kernel.limits import GRACE_S, Limits
from sandbox_kernel.model import Language
from sandbox_kernel.policy import Grant
from sandbox_kernel.policy.written_folders import host_program
from sandbox_kernel.util.values import dataclass

#: Variables that set native thread pools to one thread: the pools do not survive a fork, and checkpoints are forks. The
#: policy's environment can override them.
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "BLIS_NUM_THREADS")
#: matplotlib's folder inside the jail, below the folder for temporary files; how many of its lists are copied into it,
#: and the largest one.
_FONTS, _MAX_FONT_LISTS, _MAX_FONT_LIST = ".matplotlib", 4, 4 << 20


@dataclass(frozen=True, kw_only=True)
class Engine:
    """How the worker of one language is started; subclasses override what their language does differently."""

    module: str
    minimum_mb: int
    #: Address space in MB that the runtime reserves beyond what it uses.
    reserved_mb: int = 0
    grace_s: float = GRACE_S["process"]
    #: Whether the worker can use more memory than it was started with; V8 cannot: it fixes the size of its heap.
    grows: bool = True
    #: Whether the worker can say what its variables are.
    looks: bool = False

    def check(self, config: ProcessConfig) -> None:
        """Raise ``BackendUnavailable`` when this host cannot run such a session."""

    def preload(self, config: ProcessConfig) -> tuple[str, ...]:
        """Return the modules that a spare jail imports in advance."""
        return ("site", self.module)

    def runtime(self, config: ProcessConfig) -> tuple[Grant, ...]:
        """Return host paths that must be readable inside the jail, besides the interpreter's."""
        return ()

    def arguments(self, config: ProcessConfig, places: Places, memory_mb: int, checkpoints: int) -> list[str]:
        """Return the arguments of the guest module."""
        return [places.cell]

    def environment(self, places: Places, checkpoints: int) -> Mapping[str, str]:
        """Return environment variables besides those that every session has."""
        return {}

    def files(self, places: Places, checkpoints: int) -> tuple[JobFile, ...]:
        """Return the files that are written into the jail before the worker starts."""
        return ()

    def start_failure(self, python: Interpreter, said: str, error: BaseException) -> BackendUnavailable:
        """Return the error for a worker that did not start; ``said`` is what it printed to stderr."""
        return BackendUnavailable(f"the session did not start: {said[-500:] or error}")


class _PythonEngine(Engine):
    """IPython in the user's own environment."""

    def preload(self, config: ProcessConfig) -> tuple[str, ...]:
        return ("site", self.module, *config.preload)

    def environment(self, places: Places, checkpoints: int) -> Mapping[str, str]:
        return {
            "IPYTHONDIR": f"{places.tmp}/.ipython",
            "MPLBACKEND": "module://matplotlib_inline.backend_inline",
            "MPLCONFIGDIR": f"{places.tmp}/{_FONTS}",
            **(dict.fromkeys(_ONE_THREAD, "1") if checkpoints else {}),
        }

    def files(self, places: Places, checkpoints: int) -> tuple[JobFile, ...]:
        return font_lists(f"{places.tmp}/{_FONTS}", os.environ)

    def start_failure(self, python: Interpreter, said: str, error: BaseException) -> BackendUnavailable:
        if "No module named 'IPython'" in said:
            return BackendUnavailable(
                f"a Python session needs IPython in the environment of {python.executable}; "
                f"install it there: {python.executable} -m pip install ipython"
            )
        return super().start_failure(python, said, error)


def font_lists(inside: str, environ: Mapping[str, str]) -> tuple[JobFile, ...]:
    """Return this user's font lists of matplotlib, newest first: making one takes seconds. They are plain data."""
    cache = environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folders = [environ.get("MPLCONFIGDIR", ""), os.path.join(cache, "matplotlib")]
    found: list[tuple[float, str]] = []
    for folder in filter(None, folders):
        for path in glob.glob(os.path.join(glob.escape(folder), "fontlist-v*.json")):
            with contextlib.suppress(OSError):
                info = os.stat(path)
                if info.st_size <= _MAX_FONT_LIST:
                    found.append((-info.st_mtime, path))
    files = []
    for _, path in sorted(found)[:_MAX_FONT_LISTS]:
        with contextlib.suppress(OSError), open(path, "rb") as file:
            files.append(JobFile(root=inside, name=os.path.basename(path), data=file.read()))
    return tuple(files)


class _ShellEngine(Engine):
    """A new bash for each cell, which begins with the state of the last one."""

    def check(self, config: ProcessConfig) -> None:
        if not shell().endswith("bash"):
            raise BackendUnavailable("a command session needs bash, and this host has none; install the package 'bash'")


@dataclass(frozen=True, kw_only=True)
class _NodeEngine(Engine):
    """Node.js. With checkpoints it runs on one thread, because a fork copies only one thread."""

    module: str = "sandbox_guest.node.node_session"
    reserved_mb: int = RESERVED_MB
    grace_s: float = GRACE_S["node"]
    grows: bool = False

    def check(self, config: ProcessConfig) -> None:
        find_node(config.node_path)

    def runtime(self, config: ProcessConfig) -> tuple[Grant, ...]:
        return node_runtime(config)

    def arguments(self, config: ProcessConfig, places: Places, memory_mb: int, checkpoints: int) -> list[str]:
        flags = [f"--max-old-space-size={max(16, memory_mb - OVERHEAD_MB)}", "--disable-warning=ExperimentalWarning"]
        freezes = bool(checkpoints and freeze_addon()[0])
        if freezes:
            flags += ["--single-threaded", "--v8-pool-size=0"]
        addon = f"{places.cell}/{FREEZE_ADDON}" if freezes else "-"
        node, _ = find_node(config.node_path)
        kind = str(next(language for language, engine in ENGINES.items() if engine is self))
        return [places.cell, node, *flags, f"{places.guest}/node/node_session.js", kind, addon]

    def files(self, places: Places, checkpoints: int) -> tuple[JobFile, ...]:
        program = freeze_addon()[0] if checkpoints else b""
        return (JobFile(root=places.cell, name=FREEZE_ADDON, data=program),) if program else ()


ENGINES: Mapping[Language, Engine] = {
    Language.PYTHON: _PythonEngine(module="sandbox_guest.python.python_session", minimum_mb=64, looks=True),
    Language.COMMAND: _ShellEngine(module="sandbox_guest.scripts.shell_session", minimum_mb=32),
    Language.JAVASCRIPT: _NodeEngine(minimum_mb=96),
    Language.TYPESCRIPT: _NodeEngine(minimum_mb=128),
}


def session_walls(
    backend: ProcessBackend, engine: Engine, python: Interpreter, limits: Limits, memory_mb: int
) -> Walls:
    """Return the walls of a session: those of a run, plus the modules that its worker imports in advance."""
    backend.check_network()
    check_gpu_limit(limits.gpu_memory_mb, backend.policy.gpu)
    walls = Walls(
        python.executable,
        tuple(dict.fromkeys((*python.runtime, *engine.runtime(backend.config)))),
        backend.grants.now(),
        *sizes(limits, memory_mb),
        engine.preload(backend.config),
        enforcer=backend.enforcer.name if backend.enforcer is not None else None,
        templates=backend.config.templates,
    )
    return with_gpu(walls, backend.policy.gpu)


# Compiles the addon that lets a Node.js worker fork checkpoints; done at first use (a third of a second), then cached.
#
# Its source is ``guest/node/node_freeze.c``. The compiler is the package ``ziglang``, or else the system's C compiler.
# Without either, JavaScript sessions have no checkpoints, and their results say so.

#: The addon's file name inside the jail, in the folder of the cell's source.
FREEZE_ADDON = "freeze.node"
_FLAGS = ("-shared", "-fPIC", "-O1", "-nostdlib", "-o", FREEZE_ADDON)
_TIMEOUT_S = 120
MISSING = f"no C compiler was found to build the addon for JavaScript checkpoints; {REMEDY}"


@functools.lru_cache(maxsize=1)
def freeze_addon() -> tuple[bytes, str]:
    """Return the addon and an empty string, or no bytes and the reason why there is no addon."""
    source = os.path.join(guest_folder(), "node", "node_freeze.c")
    compiler = find_compiler()
    if compiler is None:
        return b"", MISSING
    with open(source, "rb") as file:
        text = file.read()
    key = hashlib.sha256(b"\0".join((text, repr((compiler, _FLAGS, os.uname().machine)).encode()))).hexdigest()
    cache = CompileCache(default_folder())
    found = cache.get(key)
    if found is not None:
        return found.program, ""
    program, problem = _compile(compiler, source)
    if program:
        cache.put(key, Compiled(program, b""))
    return program, problem


def find_compiler() -> tuple[str, ...] | None:
    """Return the command that compiles C on this host; None when there is none."""
    zig = find_zig()
    if zig is not None:
        return (zig.executable, "cc")
    system = next((path for name in ("cc", "gcc", "clang") if (path := shutil.which(name))), None)
    return (host_program(system),) if system is not None else None


def _compile(compiler: tuple[str, ...], source: str) -> tuple[bytes, str]:
    problem = "the addon for JavaScript checkpoints could not be compiled: "
    with tempfile.TemporaryDirectory(prefix="sandbox-kernel-") as aside:
        env = {"PATH": os.defpath, "HOME": aside, "ZIG_GLOBAL_CACHE_DIR": aside, "ZIG_LOCAL_CACHE_DIR": aside}
        try:
            answer = subprocess.run(
                [*compiler, *_FLAGS, source], cwd=aside, env=env, capture_output=True, text=True, check=False,
                timeout=_TIMEOUT_S,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            return b"", f"{problem}{error}"
        if answer.returncode != 0:
            return b"", f"{problem}{answer.stderr.strip()[-300:]}"
        with open(os.path.join(aside, FREEZE_ADDON), "rb") as file:
            return file.read(), ""
