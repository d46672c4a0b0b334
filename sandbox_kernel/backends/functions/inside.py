"""What a program needs inside to call host functions besides the hatch: the command ``host``. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from sandbox_kernel.jail.core.gate_messages import JobFile
from sandbox_kernel.jail.core.guest_programs import start_of
from sandbox_kernel.jail.core.walls import Places

COMMAND = "host"


def command_file(places: Places, python: str) -> JobFile:
    """Return the command ``host``: a script that starts our program inside with the interpreter of the jail."""
    words = [python, "-E", "-S", "-c", start_of("functions.host_command"), places.guest]
    script = f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n'
    return JobFile(root=places.cell, name=COMMAND, data=script.encode(), mode=0o755)


def with_command(env: Mapping[str, str], places: Places) -> dict[str, str]:
    """Return the environment with the folder of the command first in PATH: a system may have another ``host``."""
    return {**env, "PATH": f"{places.cell}:{env['PATH']}" if env.get("PATH") else places.cell}
