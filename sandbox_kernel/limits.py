"""How much a program may use, and how it can end. ``jail/`` and ``backends/functions/`` enforce it."""

from __future__ import annotations

import math
from dataclasses import fields
from enum import StrEnum

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.util.values import dataclass

MIB = 1 << 20

#: The longest time limit that is accepted: a week. A larger number is a typing mistake.
MAX_TIMEOUT_S = 7 * 24 * 3600.0
#: The largest memory limit that is accepted: 16 TiB.
MAX_MEMORY_MB = 16 << 20
#: The longest CPU limit that is accepted: thirty years of one core.
MAX_CPU_S = 1e9
#: Time limit of a run or cell when the caller gives none.
DEFAULT_TIMEOUT_S = 30.0
#: Memory limit of a single run when the caller gives none: unvetted code never gets the whole machine.
DEFAULT_MEMORY_MB = 2048
#: The same of a session: smaller, because it holds its memory and that of its checkpoints until it is closed.
DEFAULT_SESSION_MEMORY_MB = 512
#: The time limit of a cell where a person looks on, and the least memory, if the machine has it (``cgroups.py``).
PAGE_TIMEOUT_S, LEAST_PAGE_MEMORY_MB = 600.0, 2048
#: The largest file that ``read_file`` returns whole, and that the host reads at once for itself.
MAX_READ_BYTES = 64 * MIB
#: How many earlier states a session keeps for ``undo``.
DEFAULT_CHECKPOINTS = 5
#: How long a cell may go on after an interrupt before it is rolled back, or its wrapped kernel ended, by what runs it.
#: Formatting a deep traceback takes a second on a busy machine; Python in WebAssembly cannot be interrupted.
GRACE_S = {"process": 5.0, "node": 1.0, "quickjs": 2.0, "python in wasm": 0.1, "wrapped": 5.0}


class Limit(StrEnum):
    """The limits that a run or a cell can meet, by the names that users see.

    Those that the kernel holds for each process are set by ``rlimits`` in ``languages/recipe.py``, the others by
    ``jail/accounting/meter.py``; ``backends/outcome.py`` and ``session/cell/result.py`` tell which one was met.
    """

    TIMEOUT = "timeout"
    CPU = "cpu"
    MEMORY = "memory"
    PROCESSES = "processes"
    DISK = "disk"
    OPEN_FILES = "open_files"
    OUTPUT = "output"
    FUEL = "fuel"
    GPU_MEMORY = "gpu_memory"


class Status(StrEnum):
    """How a run or a cell ended: by itself (``ok``, ``failed``), or by what stopped it."""

    OK = "ok"
    FAILED = "failed"
    COMPILE_FAILED = "compile_failed"
    TIMEOUT = "timeout"
    CPU_LIMIT = "cpu_limit"
    MEMORY_EXCEEDED = "memory_exceeded"
    FUEL_EXHAUSTED = "fuel_exhausted"
    KILLED = "killed"
    INTERRUPTED = "interrupted"


def quoted(value: object) -> str:
    """Return ``repr(value)`` for an error message, shortened. Never raises, whatever ``value`` is."""
    try:
        text = repr(value)
    except ValueError:
        return f"{type(value).__name__} with too many digits to write"
    except Exception:
        # The repr is the caller's code and may raise anything; the error message is needed all the same.
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:60]}…"


def check_timeout(value: object) -> float:
    """Return the timeout in seconds as a float. Raises ``InvalidRequest`` when it is not usable."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidRequest(f"timeout must be a number of seconds, got {quoted(value)}; for example timeout=5")
    if not value > 0 or value == math.inf:
        raise InvalidRequest(f"timeout must be finite and above 0 seconds, got {quoted(value)}; for example timeout=5")
    if value > MAX_TIMEOUT_S:
        raise InvalidRequest(
            f"timeout {quoted(value)} s is longer than the longest allowed, {MAX_TIMEOUT_S:.0f} s (a week); give less"
        )
    return float(value)


def check_memory_mb(value: object) -> int:
    """Return the memory limit in MB. Raises ``InvalidRequest`` when it is not usable."""
    return check_whole("the memory limit in MB", value, 1, MAX_MEMORY_MB)


def check_whole(what: str, value: object, least: int, most: int | None = None) -> int:
    """Return a whole number; raises ``InvalidRequest`` for what is none, and out of bounds."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        bounds = f"of at least {least}" if most is None else f"between {least} and {most}"
        raise InvalidRequest(f"{what} must be a whole number {bounds}, got {quoted(value)}")
    return value


def _check_seconds(name: str, value: object, most: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
        raise InvalidRequest(f"{name} must be a number above 0 and at most {most:.0f}, got {quoted(value)}")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one run may use besides time and memory. Every field has a safe default.

    Args:
        cpu_seconds: CPU time of all processes together; None for no limit besides the time limit.
        processes: Processes and threads at the same time.
        open_files: Open files of each process.
        disk_mb: Size of the work folder in MB.
        output_bytes: How much of stdout, and of stderr, is kept. The rest is dropped.
        fuel: WebAssembly instructions (wasm backend only); None for no limit.
        gpu_memory_mb: Memory on all accelerators together in MB; None for no limit. The policy must allow a GPU.

    """

    cpu_seconds: float | None = None
    processes: int = 64
    open_files: int = 256
    disk_mb: int = 256
    output_bytes: int = MIB
    fuel: int | None = None
    gpu_memory_mb: int | None = None

    def __post_init__(self) -> None:
        if self.cpu_seconds is not None:
            _check_seconds("limits.cpu_seconds", self.cpu_seconds, MAX_CPU_S)
        check_whole("limits.processes", self.processes, 1, 32768)
        check_whole("limits.open_files", self.open_files, 16, 1 << 20)
        check_whole("limits.disk_mb", self.disk_mb, 1, 1 << 20)
        check_whole("limits.output_bytes", self.output_bytes, 0, 1 << 30)
        if self.fuel is not None:
            check_whole("limits.fuel", self.fuel, 1, (1 << 63) - 1)
        if self.gpu_memory_mb is not None:
            check_whole("limits.gpu_memory_mb", self.gpu_memory_mb, 1, MAX_MEMORY_MB)

    @classmethod
    def given(cls, limits: object) -> Limits:
        """Return the limits that a caller gave; None means the defaults. Raises ``InvalidRequest`` for other types."""
        if limits is None:
            return _USUAL
        if not isinstance(limits, cls):
            raise InvalidRequest(f"limits must be a Limits(...), got {quoted(limits)}; for example Limits(processes=8)")
        return limits

    def to_dict(self) -> dict[str, int | float | None]:
        """Return the limits as plain JSON values, in the order of their definition; that of a GPU only if it is set."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        if self.gpu_memory_mb is None:
            del found["gpu_memory_mb"]
        return found


_USUAL = Limits()


@dataclass(frozen=True, kw_only=True)
class FunctionLimits:
    """How much the calls of host functions may use in one run, or in one cell of a session.

    Args:
        calls: How many calls are answered.
        seconds: How long the functions may take, all calls together.
        bytes: How large arguments and results may be, all calls together, as they are sent.

    """

    calls: int = 1000
    seconds: float = 30.0
    bytes: int = 16 * MIB

    def __post_init__(self) -> None:
        check_whole("function_limits.calls", self.calls, 1, 1_000_000_000)
        check_whole("function_limits.bytes", self.bytes, 1024, 1 << 30)
        _check_seconds("function_limits.seconds", self.seconds, MAX_TIMEOUT_S)

    @classmethod
    def given(cls, limits: object) -> FunctionLimits:
        """Return the limits that a caller gave; None means the defaults. Raises ``InvalidRequest`` for other types."""
        if limits is None:
            return cls()
        if not isinstance(limits, cls):
            raise InvalidRequest(f"function_limits must be a FunctionLimits(calls=100, ...), got {quoted(limits)}")
        return limits
