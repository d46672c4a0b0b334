"""TypeScript: the waiting Node.js takes the types out and transforms enums, namespaces and parameter properties.

Decorators are beyond what Node.js transforms: a cell that has one is first transpiled by Deno, a program of the
registry package ``deno``, which also type-checks cells where ``check_types`` is configured. Both run inside the jail.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess

from sandbox_kernel.jail.core.gate_messages import JobFile, Step
from sandbox_kernel.jail.core.interpreter import runtime_grants
from sandbox_kernel.jail.core.walls import Places
from sandbox_kernel.languages.support.compiled import parts_beside
from sandbox_kernel.languages.support.node import RESERVED_MB, node_command, node_runtime, node_step, probe_node
from sandbox_kernel.languages.support.recipe import Availability, ProcessConfig, ProgramPlan, Recipe, StepBuilder
from sandbox_kernel.model import ExecRequest, Language, Note, notes
from sandbox_kernel.policy import Grant

SCRIPT, TRANSPILED = "cell.ts", "cell.js"
REMEDY = "pip install deno"

_NOT_CODE = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`""", re.DOTALL)
_DECORATOR = re.compile(r"(?:^|[\s({;,])@[A-Za-z_$(]")
_QUIET = ("--quiet", "--no-config", "--no-lock", "--no-remote")


@functools.lru_cache(maxsize=1)
def find_deno() -> tuple[str, str] | None:
    """Deno and its version, or None: only some cells need it."""
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
    """Whether a cell needs more than Node.js does; a wrong yes costs some time and nothing else."""
    return _DECORATOR.search(_NOT_CODE.sub(" ", source)) is not None


class TypeScript(Recipe):
    """Node.js in transform mode, with Deno before it where that is not enough."""

    language = Language.TYPESCRIPT
    minimum_memory_mb = 96
    reserved_mb = RESERVED_MB

    def probe(self, config: ProcessConfig) -> Availability:
        """See ``Recipe``; type checking that was configured and cannot be had is a language that cannot run."""
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

    def plan(self, request: ExecRequest, kitchen: StepBuilder) -> ProgramPlan:
        """Check if asked, transpile if needed, run; errors name the line of the cell in every case."""
        cell, deno = kitchen.places.cell, find_deno()
        steps: list[Step] = []
        told: tuple[Note, ...] = ()
        script = SCRIPT
        env = {"DENO_DIR": f"{kitchen.places.tmp}/deno", "DENO_NO_UPDATE_CHECK": "1", "NO_COLOR": "1"}
        if kitchen.config.check_types and deno is not None:
            steps.append(kitchen.compiler([deno[0], "check", *_QUIET, SCRIPT], env))
        if has_decorators(request.source.decode()):
            if deno is None:
                told = (notes.decorators_need_package(REMEDY),)
            else:
                argv = [deno[0], "transpile", *_QUIET, "--source-map", "inline", SCRIPT, "-o", f"{cell}/{TRANSPILED}"]
                steps.append(kitchen.compiler(argv, env))
                script = TRANSPILED
        files = (*parts_beside(request, cell, ".ts"), JobFile(root=cell, name=SCRIPT, data=request.source))
        steps.append(node_step(request, kitchen, [f"{cell}/{script}", *request.args], "typescript"))
        return ProgramPlan(steps=tuple(steps), files=files, notes=told)
