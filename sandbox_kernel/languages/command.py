"""Shell commands: bash if the host has it, else sh, with the system's tools."""

from __future__ import annotations

import os
import subprocess

from sandbox_kernel.jail.gate_messages import JobFile
from sandbox_kernel.languages.recipe import Availability, ProcessConfig, ProgramPlan, Recipe, StepBuilder
from sandbox_kernel.model import ExecRequest, Language

SCRIPT = "cell.sh"


def shell() -> str:
    """Return the path of the shell. System folders are the same inside, so the host's path is valid there."""
    return next((path for path in ("/usr/bin/bash", "/bin/bash") if os.path.exists(path)), "/bin/sh")


class CommandLanguage(Recipe):
    """A shell script. Its exit code or signal becomes the result's."""

    language = Language.COMMAND
    minimum_memory_mb = 16

    def probe(self, config: ProcessConfig) -> Availability:
        """See ``Recipe``."""
        program = shell()
        if not os.path.exists(program):
            return Availability(available=False, reason="no shell was found", remedy="install bash")
        answer = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=False, env={})
        lines = answer.stdout.splitlines()
        version = lines[0] if answer.returncode == 0 and lines else os.path.basename(os.path.realpath(program))
        if config.pipefail and not program.endswith("/bash"):
            return Availability(available=False, reason=f"{program} has no pipefail", remedy="install bash")
        return Availability(available=True, version=version, origin=program)

    def plan(self, request: ExecRequest, builder: StepBuilder) -> ProgramPlan:
        """See ``Recipe``. The script is a file, because an argument may not be longer than 128 KiB."""
        file = JobFile(root=builder.places.cell, name=SCRIPT, data=request.source)
        options = ["-o", "pipefail"] if builder.config.pipefail else []
        step = builder.program(request, [shell(), *options, f"{builder.places.cell}/{SCRIPT}", *request.args])
        return ProgramPlan(steps=(step,), files=(file,))
