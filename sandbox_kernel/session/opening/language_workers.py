"""What each language's worker needs in its jail: module, environment, files. Plain data; starts nothing."""

from __future__ import annotations

from collections.abc import Mapping

from sandbox_kernel.errors import BackendUnavailable
from sandbox_kernel.ground.values import dataclass
from sandbox_kernel.jail.gate_messages import JobFile
from sandbox_kernel.jail.interpreter import Interpreter
from sandbox_kernel.jail.walls import Places
from sandbox_kernel.languages.interpreters import shell
from sandbox_kernel.languages.node import OVERHEAD_MB, RESERVED_MB, find_node, node_runtime
from sandbox_kernel.languages.recipe import ProcessConfig
from sandbox_kernel.model import Language
from sandbox_kernel.policy import Grant
from sandbox_kernel.session.worker.matplotlib_fonts import FOLDER as FONTS
from sandbox_kernel.session.worker.matplotlib_fonts import font_lists
from sandbox_kernel.session.worker.node_freeze import NAME as FREEZE
from sandbox_kernel.session.worker.node_freeze import freeze_addon

#: Variables that set native thread pools to one thread: the pools do not survive a fork, and checkpoints are forks. The
#: policy's environment can override them.
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "BLIS_NUM_THREADS")


@dataclass(frozen=True, kw_only=True)
class Engine:
    """How the worker of one language is started; subclasses override what their language does differently."""

    module: str
    minimum_mb: int
    #: Address space in MB that the runtime reserves beyond what it uses.
    reserved_mb: int = 0
    #: How long a cell may go on after an interrupt before it is rolled back. Formatting a deep traceback takes a second
    #: on a busy machine.
    grace_s: float = 5.0
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


class PythonEngine(Engine):
    """IPython in the user's own environment."""

    def preload(self, config: ProcessConfig) -> tuple[str, ...]:
        """See ``Engine``."""
        return ("site", self.module, *config.preload)

    def environment(self, places: Places, checkpoints: int) -> Mapping[str, str]:
        """See ``Engine``."""
        return {
            "IPYTHONDIR": f"{places.tmp}/.ipython",
            "MPLBACKEND": "module://matplotlib_inline.backend_inline",
            "MPLCONFIGDIR": f"{places.tmp}/{FONTS}",
            **(dict.fromkeys(_ONE_THREAD, "1") if checkpoints else {}),
        }

    def files(self, places: Places, checkpoints: int) -> tuple[JobFile, ...]:
        """See ``Engine``."""
        return font_lists(f"{places.tmp}/{FONTS}")

    def start_failure(self, python: Interpreter, said: str, error: BaseException) -> BackendUnavailable:
        """See ``Engine``."""
        if "No module named 'IPython'" in said:
            return BackendUnavailable(
                f"a Python session needs IPython in the environment of {python.executable}; "
                f"install it there: {python.executable} -m pip install ipython"
            )
        return super().start_failure(python, said, error)


class ShellEngine(Engine):
    """A new bash for each cell, which begins with the state of the last one."""

    def check(self, config: ProcessConfig) -> None:
        """See ``Engine``."""
        if not shell().endswith("bash"):
            raise BackendUnavailable("a command session needs bash, and this host has none; install the package 'bash'")


@dataclass(frozen=True, kw_only=True)
class NodeEngine(Engine):
    """Node.js. With checkpoints it runs on one thread, because a fork copies only one thread."""

    kind: str

    def check(self, config: ProcessConfig) -> None:
        """See ``Engine``."""
        find_node(config.node_path)

    def runtime(self, config: ProcessConfig) -> tuple[Grant, ...]:
        """See ``Engine``."""
        return node_runtime(config)

    def arguments(self, config: ProcessConfig, places: Places, memory_mb: int, checkpoints: int) -> list[str]:
        """See ``Engine``."""
        flags = [f"--max-old-space-size={max(16, memory_mb - OVERHEAD_MB)}", "--disable-warning=ExperimentalWarning"]
        freezes = bool(checkpoints and freeze_addon()[0])
        if freezes:
            flags += ["--single-threaded", "--v8-pool-size=0"]
        addon = f"{places.cell}/{FREEZE}" if freezes else "-"
        node, _ = find_node(config.node_path)
        return [places.cell, node, *flags, f"{places.guest}/node/node_session.js", self.kind, addon]

    def files(self, places: Places, checkpoints: int) -> tuple[JobFile, ...]:
        """See ``Engine``."""
        program = freeze_addon()[0] if checkpoints else b""
        return (JobFile(root=places.cell, name=FREEZE, data=program),) if program else ()


ENGINES: Mapping[Language, Engine] = {
    Language.PYTHON: PythonEngine(module="sandbox_guest.python.python_session", minimum_mb=64, looks=True),
    Language.COMMAND: ShellEngine(module="sandbox_guest.scripts.shell_session", minimum_mb=32),
    Language.JAVASCRIPT: NodeEngine(
        module="sandbox_guest.node.node_session",
        minimum_mb=96,
        reserved_mb=RESERVED_MB,
        grace_s=1.0,
        grows=False,
        kind="javascript",
    ),
    Language.TYPESCRIPT: NodeEngine(
        module="sandbox_guest.node.node_session",
        minimum_mb=128,
        reserved_mb=RESERVED_MB,
        grace_s=1.0,
        grows=False,
        kind="typescript",
    ),
}
