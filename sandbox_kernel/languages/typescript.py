"""TypeScript: the waiting Node.js removes the types and transforms enums, namespaces and parameter properties.

Node.js does not transform decorators. A cell with decorators is first transpiled by Deno, from the registry package
``deno`` (the extra ``typescript``), which also checks types if ``check_types`` is set. Both run inside the jail.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess

from sandbox_kernel.errors import install_line
from sandbox_kernel.jail.gate_messages import JobFile, Step
from sandbox_kernel.jail.interpreter import runtime_grants
from sandbox_kernel.jail.walls import Places
from sandbox_kernel.languages.compiled import parts_beside
from sandbox_kernel.languages.node import RESERVED_MB, node_command, node_runtime, node_step, probe_node
from sandbox_kernel.languages.recipe import (
    HOST_TYPES,
    Availability,
    ProcessConfig,
    ProgramPlan,
    Recipe,
    StepBuilder,
)
from sandbox_kernel.model import ExecRequest, Language, Note, notes
from sandbox_kernel.policy import Grant

SCRIPT, TRANSPILED = "cell.ts", "cell.js"
REMEDY = install_line("typescript")

#: What is not closed goes to the end of its line or of the code, so that no character is read twice: code may be made
#: to take the host's time.
_NOT_CODE = re.compile(
    r"""//[^\n]* | /\*.*?(?:\*/|\Z)
    | "[^"\\\n]*+(?:\\.[^"\\\n]*+)*+(?:"|(?=\n)|\\?\Z)
    | '[^'\\\n]*+(?:\\.[^'\\\n]*+)*+(?:'|(?=\n)|\\?\Z)
    | `[^`\\]*+(?:\\.[^`\\]*+)*+(?:`|\\?\Z)""",
    re.DOTALL | re.VERBOSE,
)
_DECORATOR = re.compile(r"(?:^|[\s({;,])@[A-Za-z_$(]")
_QUIET = ("--quiet", "--no-config", "--no-lock", "--no-remote")


@functools.lru_cache(maxsize=1)
def find_deno() -> tuple[str, str] | None:
    """Return Deno and its version, or None. Only some cells need it."""
    try:
        from deno import find_deno_bin
    except ImportError:
        return None
    try:
        path = os.path.realpath(find_deno_bin())
        answer = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30, check=False, env={})
    except OSError:
        return None
    return (path, answer.stdout.splitlines()[0]) if answer.returncode == 0 and answer.stdout else None


def has_decorators(source: str) -> bool:
    """Whether a cell needs Deno. A wrong yes only costs time."""
    return _DECORATOR.search(_NOT_CODE.sub(" ", source)) is not None


class TypeScript(Recipe):
    """Node.js in transform mode, after Deno if that is needed."""

    language = Language.TYPESCRIPT
    minimum_memory_mb = 96
    reserved_mb = RESERVED_MB

    def probe(self, config: ProcessConfig) -> Availability:
        """See ``Recipe``. If type checking is configured but Deno is missing, the language is unavailable."""
        found, deno = probe_node(config), find_deno()
        if config.check_types and deno is None:
            return Availability(available=False, reason="type checking needs the package deno", remedy=REMEDY)
        if not found.available:
            return found
        extra = f", {deno[1]}" if deno is not None else ", no decorators without the package deno"
        return Availability(available=True, version=f"node {found.version}{extra}", origin=found.origin)

    def runtime(self, config: ProcessConfig) -> tuple[Grant, ...]:
        """See ``Recipe``."""
        deno = find_deno()
        return (*node_runtime(config), *(runtime_grants([deno[0]]) if deno is not None else ()))

    def warm(self, config: ProcessConfig, memory_mb: int, places: Places) -> tuple[str, ...]:
        """See ``Recipe``."""
        return node_command(config, memory_mb, places, "typescript")

    def plan(self, request: ExecRequest, builder: StepBuilder) -> ProgramPlan:
        """See ``Recipe``. Checks types if configured, transpiles if needed, runs. Errors name the line of the cell."""
        cell, deno = builder.places.cell, find_deno()
        steps: list[Step] = []
        told: tuple[Note, ...] = ()
        script = SCRIPT
        env = {"DENO_DIR": f"{builder.places.tmp}/deno", "DENO_NO_UPDATE_CHECK": "1", "NO_COLOR": "1"}
        if builder.config.check_types and deno is not None:
            checked = [SCRIPT, HOST_TYPES] if builder.calls_host else [SCRIPT]
            steps.append(builder.compiler([deno[0], "check", *_QUIET, *checked], env))
        if has_decorators(request.source.decode()):
            if deno is None:
                told = (notes.decorators_need_package(REMEDY),)
            else:
                argv = [deno[0], "transpile", *_QUIET, "--source-map", "inline", SCRIPT, "-o", f"{cell}/{TRANSPILED}"]
                steps.append(builder.compiler(argv, env))
                script = TRANSPILED
        files = (*parts_beside(request, cell, ".ts"), JobFile(root=cell, name=SCRIPT, data=request.source))
        steps.append(node_step(request, builder, [f"{cell}/{script}", *request.args], "typescript"))
        return ProgramPlan(steps=tuple(steps), files=files, notes=told)
