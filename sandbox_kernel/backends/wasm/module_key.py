"""The name of a compiled module in the store. It depends on everything that changes the compiled code.

That is the module itself, the version and settings of the engine, the processor, and our own preparation of modules.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import importlib.resources
import json
import platform
from dataclasses import asdict, dataclass

from sandbox_kernel.errors import BackendUnavailable

#: Guest programs whose code changes the compiled module.
_PREPARATION = (
    "wasm/binary/format.py",
    "wasm/binary/inspect_module.py",
    "wasm/binary/opcodes.py",
    "wasm/binary/rewrite.py",
    "wasm/compile_module.py",
    "wasm/engine.py",
    "wasm/wasi/engine_overrides.py",
)


@dataclass(frozen=True, kw_only=True)
class EngineSwitches:
    """Settings of the engine for a module; ``guest/wasm/engine.py`` reads the same fields."""

    fuel: bool = False
    stack_bytes: int = 1 << 20
    exceptions: bool = False

    def to_dict(self) -> dict[str, object]:
        """Return the settings as a dictionary for a plan."""
        return asdict(self)


PLAIN = EngineSwitches()


@functools.lru_cache(maxsize=1)
def engine_version() -> str:
    """Return the version of the installed wasmtime without importing it."""
    try:
        return importlib.metadata.version("wasmtime")
    except importlib.metadata.PackageNotFoundError:
        raise BackendUnavailable("wasmtime is not installed; install it with: pip install wasmtime") from None


@functools.lru_cache(maxsize=1)
def _surroundings() -> str:
    guest = importlib.resources.files("sandbox_kernel") / "guest"
    parts = [engine_version(), platform.machine(), _processor_features()]
    parts += [hashlib.sha256((guest / name).read_bytes()).hexdigest() for name in _PREPARATION]
    return "\n".join(parts)


def _processor_features() -> str:
    """Return the features of this processor. Compiled code depends on them, and machines may share a home folder."""
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.lower().startswith(("flags", "features")):
                    return " ".join(sorted(line.split(":", 1)[1].split()))
    except OSError:
        pass
    return platform.processor()


def compiled_name(prefix: str, sha256: str, switches: EngineSwitches) -> str:
    """Return the name of a compiled module in the store."""
    settings = json.dumps(switches.to_dict(), sort_keys=True)
    setting = hashlib.sha256(f"{_surroundings()}\n{settings}".encode()).hexdigest()
    return f"{prefix}{sha256[:40]}-{setting[:24]}"
