"""Starts the walls of a kernel's first session while most of the kernel is still to be imported."""

from __future__ import annotations

import contextlib

from sandbox_kernel.backends.process import ProcessBackend
from sandbox_kernel.errors import SandboxError
from sandbox_kernel.jail.interpreter import find_python
from sandbox_kernel.limits import DEFAULT_SESSION_MEMORY_MB
from sandbox_kernel.model import Language
from sandbox_kernel.notebook.options.cell_options import config_of, limits_of, policy_of
from sandbox_kernel.notebook.options.parse_cell import first_defaults
from sandbox_kernel.session.language_workers import ENGINES, session_walls


def begin_first_jail() -> None:
    """Start the jail of the first Python session, if walls are all that it needs. The session tells what goes wrong."""
    with contextlib.suppress(SandboxError):
        options = first_defaults().of_session
        python_session = options.keeps_state and options.effective_language is Language.PYTHON
        if not python_session or options.backend not in (None, "auto", "process"):
            return
        policy = policy_of(options)
        if options.here is not None or policy.mounts or policy.allowed_paths:
            return
        backend = ProcessBackend(config_of(options), policy=policy)
        python, memory_mb = find_python(backend.config.python_path), options.memory_mb or DEFAULT_SESSION_MEMORY_MB
        backend.begin(session_walls(backend, ENGINES[Language.PYTHON], python, limits_of(options), memory_mb))
