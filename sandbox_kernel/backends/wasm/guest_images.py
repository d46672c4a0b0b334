"""The names of compiled modules and images in the store, and what they are made of.

A name depends on everything that changes the compiled code: the module itself, the version and settings of the engine,
the processor, and our own preparation of modules. An image of a CPython that has started is made in a jail
(``guest/wasm/boot_python.py``). The hash seed is part of it, so a new one is made each month. Pure, except that
it reads the clock and our own programs.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import importlib.resources
import json
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from sandbox_kernel.errors import BackendUnavailable
from sandbox_kernel.jail.walls import CELL, WORK
from sandbox_kernel.languages.guest_catalogue import WasmLanguage
from sandbox_kernel.policy import Grant

#: Guest programs whose code changes the compiled module.
_PREPARATION = (
    "wasm/binary.py",
    "wasm/rewrite.py",
    "wasm/compile_module.py",
    "wasm/engine.py",
    "wasm/engine.py",
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


#: The folders of every run of an interpreter, in the order of their descriptors.
PLACES = (WORK, ".", "/", CELL)
#: What fits into an image: mounts, bytes of a mount's name, bytes of the arguments and of the environment.
MOST_MOUNTS, MOST_NAME_BYTES, MOST_TEXT_BYTES = 24, 255, 1 << 18
#: The file of a store entry that says how its image is entered.
FACTS = "image.json"
#: How long an image is used, in seconds.
_LIFE_S = 30 * 86_400
#: Variables of the environment that an image honours. CPython reads the others when it starts.
_HONOURED = ("PYTHONPATH",)
#: Guest programs whose code changes an image.
_MAKERS = (
    "wasm/rewrite.py",
    "wasm/boot_python.py",
)


def boot_fields(guest: WasmLanguage) -> dict[str, object]:
    """Return the fields of the plan that makes the image of a language."""
    return {
        "programs": dict(guest.image),
        "places": list(PLACES),
        "spares": MOST_MOUNTS,
        "spare_bytes": MOST_NAME_BYTES,
        "buffer_bytes": 4 * MOST_TEXT_BYTES,
    }


def image_parts(guest: WasmLanguage) -> list[str]:
    """Return what decides the content of an image, besides the module; nothing for a language without one."""
    if not guest.image:
        return []
    folder = importlib.resources.files("sandbox_kernel") / "guest"
    names = (*_MAKERS, *guest.image.values())
    return [
        *(hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names),
        json.dumps(boot_fields(guest), sort_keys=True),
    ]


def age_mark(now: float | None = None) -> str:
    """Return the part of an image's name that changes when a new one is due."""
    return f"{int((time.time() if now is None else now) // _LIFE_S)}"


def why_not_image(grants: Sequence[Grant], argv: Sequence[str], env: Mapping[str, str]) -> str | None:
    """Return why a run cannot use an image; None when it can."""
    read_at_start = [name for name in env if name.startswith("PYTHON") and name not in _HONOURED]
    if read_at_start:
        return f"CPython reads {read_at_start[0]} when it starts"
    if len(grants) > MOST_MOUNTS or any(len(grant.target.encode()) > MOST_NAME_BYTES for grant in grants):
        return f"an image has room for {MOST_MOUNTS} mounts with names of {MOST_NAME_BYTES} bytes"
    sizes = (
        sum(len(text.encode("utf-8", "surrogatepass")) + 5 for text in argv),
        sum(len(f"{name}={value}".encode("utf-8", "surrogatepass")) + 5 for name, value in env.items()),
    )
    if max(sizes) > MOST_TEXT_BYTES - 1024:
        return f"an image has room for {MOST_TEXT_BYTES} bytes of arguments and as many of the environment"
    return None
