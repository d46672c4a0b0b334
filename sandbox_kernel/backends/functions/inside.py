"""How a run gets its host functions: a call socket in its job, and the command ``host``."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from sandbox_kernel.jail.gate_messages import JobFile
from sandbox_kernel.jail.guest_programs import start_of
from sandbox_kernel.jail.run_job import Job
from sandbox_kernel.jail.walls import Places
from sandbox_kernel.languages.recipe import HOST_TYPES
from sandbox_kernel.model import Language

if TYPE_CHECKING:
    from sandbox_kernel.backends.functions.call_server import CallServer

COMMAND = "host"
_ERROR = "HostError: new (type: string, message: string) => Error & { type: string };"


def command_file(places: Places, python: str) -> JobFile:
    """Return the command ``host``: a script that starts our program inside with the interpreter of the jail."""
    words = [python, "-E", "-S", "-c", start_of("functions.host_command"), places.guest]
    script = f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n'
    return JobFile(root=places.cell, name=COMMAND, data=script.encode(), mode=0o755)


def with_command(env: Mapping[str, str], places: Places) -> dict[str, str]:
    """Return the environment with the folder of the command first in PATH: a system may have another ``host``."""
    return {**env, "PATH": f"{places.cell}:{env['PATH']}" if env.get("PATH") else places.cell}


def with_call_socket(job: Job, server: CallServer | None, places: Places, python: str) -> Job:
    """Return the job with the call socket and the command ``host`` for its program; compilers get neither."""
    if server is None:
        return job
    *before, program = job.steps
    steps = (*before, replace(program, env=with_command(program.env, places)))
    files = [*job.files, command_file(places, python)]
    if any(HOST_TYPES in step.argv for step in before):
        from sandbox_kernel.backends.functions.host_function import describe_functions

        declared = describe_functions(server.functions, Language.TYPESCRIPT).replace("{\n", f"{{\n  {_ERROR}\n", 1)
        files.append(JobFile(root=places.cell, name=HOST_TYPES, data=declared.encode()))
    return with_functions(replace(job, steps=steps, files=tuple(files)), server)


def with_functions(job: Job, server: CallServer) -> Job:
    """Return the job with the call socket and the list of functions for its last step."""
    *before, program = job.steps
    steps = (*before, replace(program, functions=server.functions.listing()))
    return replace(job, steps=steps, call_socket=server.call_socket)
