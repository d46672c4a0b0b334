"""Python, and SQL with its SQLite: both run in the interpreter that waits in the jail."""

from __future__ import annotations

import functools
import os

from sandbox_kernel.errors import BackendUnavailable
from sandbox_kernel.jail.gate_messages import JobFile
from sandbox_kernel.jail.guest_programs import guest_folder
from sandbox_kernel.jail.interpreter import answer_of, find_python
from sandbox_kernel.languages.recipe import ProgramPlan, Recipe, StepBuilder, Toolchains
from sandbox_kernel.model import ExecRequest, Language
from sandbox_kernel.policy import Grant
from sandbox_kernel.policy.written_folders import host_program

SCRIPT, SQL_SCRIPT = "cell.py", "cell.sql"


class PythonLanguage(Recipe):
    """CPython, with the packages of the environment that it belongs to. Runs as ``python cell.py`` would."""

    language = Language.PYTHON
    minimum_memory_mb = 32

    def find(self, config: Toolchains) -> tuple[str, str]:
        """See ``Recipe``."""
        found = find_python(config.python_path)
        return found.executable, ".".join(map(str, found.version))

    def runtime(self, config: Toolchains) -> tuple[Grant, ...]:
        """See ``Recipe``. The backend shows every program what Python needs."""
        return ()

    def plan(self, request: ExecRequest, builder: StepBuilder) -> ProgramPlan:
        """See ``Recipe``. The source is a file too, so that tracebacks, ``inspect`` and ``multiprocessing`` find it."""
        path = f"{builder.places.cell}/{SCRIPT}"
        step = builder.program(request, [path, *request.args], kind="python", source=request.source)
        if [name for name in step.env if name.startswith("PYTHON")]:
            # An interpreter reads these when it starts, and the waiting one has started already.
            interpreter = find_python(builder.config.python_path).executable
            step = builder.program(request, [interpreter, "-u", path, *request.args])
        return ProgramPlan(steps=(step,), files=(JobFile(root=builder.places.cell, name=SCRIPT, data=request.source),))


@functools.lru_cache(maxsize=1)
def _sql_program() -> bytes:
    with open(os.path.join(guest_folder(), "scripts", "sql_run.py"), "rb") as file:
        return file.read()


class Sql(PythonLanguage):
    """SQLite on a file of the work folder (``--arg``) or in memory; see ``guest/scripts/sql_run.py``."""

    language = Language.SQL

    def find(self, config: Toolchains) -> tuple[str, str]:
        """See ``Recipe``."""
        python = host_program(find_python(config.python_path).executable)
        answer = answer_of([python, "-I", "-c", "import sqlite3; print(sqlite3.sqlite_version)"])
        if answer.returncode != 0:
            raise BackendUnavailable(f"{python} has no sqlite3", "use a Python that has it")
        return f"{python} (module sqlite3)", answer.stdout.strip()

    def plan(self, request: ExecRequest, builder: StepBuilder) -> ProgramPlan:
        """See ``Recipe``."""
        argv = [f"{builder.places.guest}/scripts/sql_run.py", f"{builder.places.cell}/{SQL_SCRIPT}", *request.args]
        file = JobFile(root=builder.places.cell, name=SQL_SCRIPT, data=request.source)
        step = builder.program(request, argv, kind="python", source=_sql_program())
        return ProgramPlan(steps=(step,), files=(file,))


RECIPES = (PythonLanguage(), Sql())
