"""Python: runs in the interpreter that waits in the jail, as ``python cell.py`` would."""

from __future__ import annotations

from sandbox_kernel.errors import BackendUnavailable
from sandbox_kernel.jail.gate_messages import JobFile, Step
from sandbox_kernel.jail.interpreter import find_python
from sandbox_kernel.languages.recipe import Availability, ProcessConfig, ProgramPlan, Recipe, StepBuilder
from sandbox_kernel.model import ExecRequest, Language
from sandbox_kernel.policy import Grant

SCRIPT = "cell.py"


class PythonLanguage(Recipe):
    """CPython, with the packages of the environment that it belongs to."""

    language = Language.PYTHON
    minimum_memory_mb = 32

    def probe(self, config: ProcessConfig) -> Availability:
        """See ``Recipe``."""
        try:
            found = find_python(config.python_path)
        except BackendUnavailable as error:
            return Availability(available=False, reason=str(error), remedy="install Python 3.8 or later")
        return Availability(available=True, version=".".join(map(str, found.version)), origin=found.executable)

    def runtime(self, config: ProcessConfig) -> tuple[Grant, ...]:
        """See ``Recipe``."""
        return find_python(config.python_path).runtime

    def plan(self, request: ExecRequest, builder: StepBuilder) -> ProgramPlan:
        """See ``Recipe``. The source is a file too, so that tracebacks, ``inspect`` and ``multiprocessing`` find it."""
        env = builder.environment(request)
        path = f"{builder.places.cell}/{SCRIPT}"
        file = JobFile(root=builder.places.cell, name=SCRIPT, data=request.source)
        if any(name.startswith("PYTHON") for name in env):
            # An interpreter reads these when it starts, and the waiting one has started already.
            interpreter = find_python(builder.config.python_path).executable
            return ProgramPlan(
                steps=(builder.program(request, [interpreter, "-u", path, *request.args]),), files=(file,)
            )
        step = Step(
            kind="python",
            argv=[path, *request.args],
            cwd=builder.places.work,
            env=env,
            rlimits=builder.rlimits,
            source=request.source,
            seccomp=builder.no_spawn,
        )
        return ProgramPlan(steps=(step,), files=(file,))
