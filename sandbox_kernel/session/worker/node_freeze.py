"""Compiles the addon that lets a Node.js worker fork checkpoints; done at first use (a third of a second), then cached.

Its source is ``guest/node/node_freeze.c``. The compiler is the package ``ziglang``, or else the system's C compiler.
Without either, JavaScript sessions have no checkpoints, and their results say so.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import tempfile

from sandbox_kernel.jail.guest_programs import guest_folder
from sandbox_kernel.languages.c_family import REMEDY, find_zig
from sandbox_kernel.languages.compile_cache import CompileCache, Compiled, default_folder
from sandbox_kernel.policy.written_folders import host_program

#: The addon's file name inside the jail, in the folder of the cell's source.
NAME = "freeze.node"
_FLAGS = ("-shared", "-fPIC", "-O1", "-nostdlib", "-o", NAME)
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
    with tempfile.TemporaryDirectory(prefix="sandbox-kernel-") as aside:
        env = {"PATH": os.defpath, "HOME": aside, "ZIG_GLOBAL_CACHE_DIR": aside, "ZIG_LOCAL_CACHE_DIR": aside}
        try:
            answer = subprocess.run(
                [*compiler, *_FLAGS, source], cwd=aside, env=env, capture_output=True, text=True, check=False,
                timeout=_TIMEOUT_S,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            return b"", f"the addon for JavaScript checkpoints could not be compiled: {error}"
        if answer.returncode != 0:
            return b"", f"the addon for JavaScript checkpoints could not be compiled: {answer.stderr.strip()[-300:]}"
        with open(os.path.join(aside, NAME), "rb") as file:
            return file.read(), ""
