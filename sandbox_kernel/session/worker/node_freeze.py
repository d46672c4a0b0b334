"""The addon with which a Node.js session freezes itself, compiled when it is first needed (a third of a second).

Its source is ``guest/node/node_freeze.c``. Zig from the registry compiles it, or else the system's C compiler; where
there is neither, JavaScript sessions have no checkpoints and say so.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import tempfile

from sandbox_kernel.jail.core.guest_programs import guest_folder
from sandbox_kernel.languages.support.compile_cache import CompileCache, Compiled, default_folder
from sandbox_kernel.languages.support.zig_toolchain import find_zig

#: The name of the addon inside, beside the cell's source.
NAME = "freeze.node"
_FLAGS = ("-shared", "-fPIC", "-O1", "-nostdlib", "-o", NAME)
_TIMEOUT_S = 120
MISSING = "no C compiler was found to build what freezes JavaScript (pip install ziglang)"


@functools.lru_cache(maxsize=1)
def freeze_addon() -> tuple[bytes, str]:
    """The addon, or nothing and the reason why there is none."""
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
    """The command that compiles C here."""
    zig = find_zig()
    if zig is not None:
        return (zig.executable, "cc")
    system = next((path for name in ("cc", "gcc", "clang") if (path := shutil.which(name))), None)
    return (system,) if system is not None else None


def _compile(compiler: tuple[str, ...], source: str) -> tuple[bytes, str]:
    with tempfile.TemporaryDirectory(prefix="sandbox-kernel-") as aside:
        env = {"PATH": os.defpath, "HOME": aside, "ZIG_GLOBAL_CACHE_DIR": aside, "ZIG_LOCAL_CACHE_DIR": aside}
        try:
            answer = subprocess.run(
                [*compiler, *_FLAGS, source], cwd=aside, env=env, capture_output=True, text=True, check=False,
                timeout=_TIMEOUT_S,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            return b"", f"what freezes JavaScript could not be compiled: {error}"
        if answer.returncode != 0:
            return b"", f"what freezes JavaScript could not be compiled: {answer.stderr.strip()[-300:]}"
        with open(os.path.join(aside, NAME), "rb") as file:
            return file.read(), ""
