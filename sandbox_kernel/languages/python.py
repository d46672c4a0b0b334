"""Python: runs in the interpreter that waits in the jail, as ``python cell.py`` would."""

from __future__ import annotations

import functools
import os
import subprocess

from sandbox_kernel.errors import BackendUnavailable
from sandbox_kernel.jail.gate_messages import JobFile, Step
from sandbox_kernel.jail.guest_programs import guest_folder
from sandbox_kernel.jail.interpreter import find_python
from sandbox_kernel.languages.recipe import Availability, ProgramPlan, Recipe, StepBuilder, Toolchains
from sandbox_kernel.model import ExecRequest, Language
from sandbox_kernel.policy import Grant
from sandbox_kernel.policy.written_folders import host_program

SCRIPT = "cell.py"


class PythonLanguage(Recipe):
    """CPython, with the packages of the environment that it belongs to."""

    language = Language.PYTHON
    minimum_memory_mb = 32

    def probe(self, config: Toolchains) -> Availability:
        """See ``Recipe``."""
        try:
            found = find_python(config.python_path)
        except BackendUnavailable as error:
            return Availability(available=False, reason=str(error), remedy="install Python 3.8 or later")
        return Availability(available=True, version=".".join(map(str, found.version)), origin=found.executable)

    def runtime(self, config: Toolchains) -> tuple[Grant, ...]:
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


# SQL, with the SQLite of the waiting Python. The database is a file in the work folder (``--arg``) or in memory.

SQL_SCRIPT = "cell.sql"
_ASK_SQLITE = "import sqlite3; print(sqlite3.sqlite_version)"


@functools.lru_cache(maxsize=1)
def _program() -> bytes:
    with open(os.path.join(guest_folder(), "scripts", "sql_run.py"), "rb") as file:
        return file.read()


class Sql(Recipe):
    """SQLite. ``guest/scripts/sql_run.py`` says what a cell can use besides SQL."""

    language = Language.SQL
    minimum_memory_mb = 32

    def probe(self, config: Toolchains) -> Availability:
        """See ``Recipe``."""
        try:
            python = host_program(find_python(config.python_path).executable)
        except BackendUnavailable as error:
            return Availability(available=False, reason=str(error), remedy="install Python 3.8 or later")
        answer = subprocess.run(
            [python, "-I", "-c", _ASK_SQLITE], capture_output=True, text=True, timeout=30, check=False
        )
        if answer.returncode != 0:
            return Availability(available=False, reason=f"{python} has no sqlite3", remedy="use a Python that has it")
        return Availability(available=True, version=answer.stdout.strip(), origin=f"{python} (module sqlite3)")

    def runtime(self, config: Toolchains) -> tuple[Grant, ...]:
        """See ``Recipe``."""
        return find_python(config.python_path).runtime

    def plan(self, request: ExecRequest, builder: StepBuilder) -> ProgramPlan:
        """See ``Recipe``."""
        script = f"{builder.places.cell}/{SQL_SCRIPT}"
        step = Step(
            kind="python", argv=[f"{builder.places.guest}/scripts/sql_run.py", script, *request.args],
            source=_program(),
            cwd=builder.places.work, env=builder.environment(request), rlimits=builder.rlimits,
            seccomp=builder.no_spawn,
        )  # fmt: skip
        return ProgramPlan(
            steps=(step,), files=(JobFile(root=builder.places.cell, name=SQL_SCRIPT, data=request.source),)
        )
