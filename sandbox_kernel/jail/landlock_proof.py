"""Tests that a Landlock jail holds on this host: a program tries each wall once, and works normally inside."""

from __future__ import annotations

import os
import tempfile

from sandbox_kernel.errors import EnforcerUnavailable
from sandbox_kernel.jail.core.gate_messages import Step
from sandbox_kernel.jail.core.jail import Jail
from sandbox_kernel.jail.core.job import Job
from sandbox_kernel.jail.core.walls import LANDLOCK
from sandbox_kernel.jail.run.run_job import run_job
from sandbox_kernel.limits import MIB

_PROGRAM = b"""
import os, socket, sys
outside = sys.argv[1]
def refused(what, act):
    try: act()
    except OSError: return
    sys.exit(what)
with open("inside", "w") as file: file.write("x")
with open("inside") as file: file.read()
refused("a file outside could be read", lambda: open(outside).close())
refused("a file outside could be written", lambda: open(outside, "r+").close())
refused("a file could be made outside", lambda: open(outside + ".new", "x").close())
refused("a socket could be opened", lambda: socket.socket().close())
refused("a socket could be opened", lambda: socket.socket(socket.AF_UNIX).close())
"""


def prove_walls(jail: Jail) -> None:
    """Run the test program in a waiting jail. Raises ``EnforcerUnavailable`` that names the wall that did not hold."""
    with tempfile.NamedTemporaryFile(prefix="sandbox-kernel-proof-") as outside:
        # Every user may access the file, so only Landlock can refuse it.
        os.chmod(outside.name, 0o666)
        work = jail.places.work
        step = Step(kind="python", argv=["proof.py", outside.name], env={}, rlimits={}, cwd=work, source=_PROGRAM)
        job = Job(steps=(step,), timeout_s=30.0, memory_bytes=256 * MIB, processes=16, output_bytes=4096)
        outcome = run_job(jail, job)
    if not outcome.exits or outcome.exits[-1].code != 0:
        said = outcome.stderr.text.strip() or f"the test program failed ({outcome.stopped_by or outcome.exits})"
        raise EnforcerUnavailable(LANDLOCK, f"its walls do not hold on this host: {said}")
