"""JavaScript: runs in the Node.js that waits in the jail, as ``node cell.js`` would.

CommonJS and ES modules: Node.js decides by the syntax (``import``, ``export``, ``await`` at the top level).
"""

from __future__ import annotations

from sandbox_kernel.jail.core.gate_messages import JobFile
from sandbox_kernel.jail.core.walls import Places
from sandbox_kernel.languages.support.node import RESERVED_MB, node_command, node_runtime, node_step, probe_node
from sandbox_kernel.languages.support.recipe import Availability, ProcessConfig, ProgramPlan, Recipe, StepBuilder
from sandbox_kernel.model import ExecRequest, Language
from sandbox_kernel.policy import Grant

SCRIPT = "cell.js"


class JavaScriptLanguage(Recipe):
    """Node.js from the registry, or the configured one."""

    language = Language.JAVASCRIPT
    minimum_memory_mb = 64
    reserved_mb = RESERVED_MB

    def probe(self, config: ProcessConfig) -> Availability:
        """See ``Recipe``."""
        return probe_node(config)

    def runtime(self, config: ProcessConfig) -> tuple[Grant, ...]:
        """See ``Recipe``."""
        return node_runtime(config)

    def warm(self, config: ProcessConfig, memory_mb: int, places: Places) -> tuple[str, ...]:
        """See ``Recipe``."""
        return node_command(config, memory_mb, places, "javascript")

    def plan(self, request: ExecRequest, builder: StepBuilder) -> ProgramPlan:
        """See ``Recipe``. The source is a file, so that errors show its name and line."""
        file = JobFile(root=builder.places.cell, name=SCRIPT, data=request.source)
        argv = [f"{builder.places.cell}/{SCRIPT}", *request.args]
        return ProgramPlan(steps=(node_step(request, builder, argv, "javascript"),), files=(file,))
