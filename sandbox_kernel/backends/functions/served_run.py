"""How a run gets its host functions: a server for the run, and a hatch in its job."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from sandbox_kernel.backends.functions.inside import command_file, typescript_files, with_command
from sandbox_kernel.jail.gate_messages import JobFile
from sandbox_kernel.jail.run_job import Job
from sandbox_kernel.jail.walls import Places
from sandbox_kernel.languages.recipe import HOST_TYPES

if TYPE_CHECKING:
    import asyncio

    from sandbox_kernel.backends.functions.call_server import CallServer
    from sandbox_kernel.backends.functions.host_function import HostFunctions


@contextlib.contextmanager
def served(
    functions: HostFunctions | None, loop: asyncio.AbstractEventLoop | None = None
) -> Iterator[CallServer | None]:
    """Serve the calls of one run inside the block; None without functions.

    Args:
        functions: The functions that the program may call.
        loop: Where coroutine functions run; None for a loop of our own.

    """
    if functions is None:
        yield None
        return
    from sandbox_kernel.backends.functions.call_server import CallServer  # most runs have no functions

    server = CallServer(functions)
    try:
        server.begin(loop)
        yield server
    finally:
        server.close()


def with_hatch(job: Job, server: CallServer | None, places: Places, python: str) -> Job:
    """Return the job with the hatch and the command ``host`` for its last step, the program. A compiler gets none."""
    if server is None:
        return job
    *before, program = job.steps
    steps = (*before, replace(program, env=with_command(program.env, places)))
    files = [*job.files, command_file(places, python)]
    if any(HOST_TYPES in step.argv for step in before):
        types = typescript_files(server.functions)
        files += [JobFile(root=places.cell, name=name, data=data) for name, data in types.items()]
    return with_functions(replace(job, steps=steps, files=tuple(files)), server)


def with_functions(job: Job, server: CallServer) -> Job:
    """Return the job with the hatch and the list of functions for its last step."""
    *before, program = job.steps
    steps = (*before, replace(program, functions=server.functions.listing()))
    return replace(job, steps=steps, hatch=server.hatch)
