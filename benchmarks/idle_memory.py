"""Measures the memory of idle processes: many sessions, and a program with a ready sandbox. Used by ``bench_scaling``.

Measures proportional set sizes: a shared page is divided among its processes, so that sums are correct.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.checkpoint_cost import settle
from sandbox_kernel import Sandbox
from sandbox_kernel.jail.accounting.processes import proportional_bytes, tree, usage
from sandbox_kernel.session.session import Session

_MB = 1 << 20
#: A program that makes a sandbox ready, prints a line and waits.
_HOLDER = """
import time
from sandbox_kernel import Sandbox
box = Sandbox()
box.run("print(1)", "python", timeout=60)
while box.backend._pool.spares() < box.backend._pool.size:
    time.sleep(0.01)
print("ready", flush=True)
input()
"""


@dataclass(frozen=True)
class Idle:
    """Memory of some idle processes."""

    resident_mb: float
    proportional_mb: float
    processes: int

    @classmethod
    def of(cls, pids: list[int]) -> Idle:
        """Measure it now."""
        return cls(usage(pids).resident_bytes / _MB, proportional_bytes(pids) / _MB, len(pids))


def session_memory(counts: Sequence[int], checkpoints: int) -> dict[int, float]:
    """Return the megabytes of all processes of a program with this many sessions: workers, checkpoints, spares."""
    found = {}
    with Sandbox() as box:
        opened: list[Session] = []
        pool = box.backend._pool
        for count in counts:
            while len(opened) < count:
                session = box.session("python", checkpoints=checkpoints)
                for _ in range(checkpoints + 1):
                    session.run("x = 1")
                opened.append(session)
            for session in opened:
                settle(session)
            while count > 1 and pool.spares() < pool.size:  # the first session has no spares
                time.sleep(0.01)
            found[count] = proportional_bytes([pid for pid in tree(os.getpid()) if pid != os.getpid()]) / _MB
    return found


@contextlib.contextmanager
def ipykernels(count: int) -> Iterator[list[int]]:
    """Start this many kernels, run a cell in each, and return their processes."""
    from jupyter_client.manager import start_new_kernel

    with contextlib.ExitStack() as stack:
        pids: list[int] = []
        for _ in range(count):
            manager, client = start_new_kernel(kernel_name="python3", stderr=subprocess.DEVNULL)
            stack.callback(manager.shutdown_kernel, now=True)
            stack.callback(client.stop_channels)
            client.execute_interactive("x = 1", timeout=60)
            pids += tree(manager.provisioner.process.pid)
        yield pids


def ipykernel_memory(counts: Sequence[int]) -> dict[int, float]:
    """Return the megabytes of this many kernels."""
    found = {}
    for count in counts:
        with ipykernels(count) as pids:
            found[count] = proportional_bytes(pids) / _MB
    return found


def idle_programs() -> dict[str, Idle]:
    """Measure a plain interpreter, a kernel, and a program with a sandbox, without and with its spares."""
    found = {}
    with _waiting("print('ready', flush=True); input()") as pid:
        found["plain python3"] = Idle.of([pid])
    with ipykernels(1) as pids:
        found["ipykernel"] = Idle.of(pids)
    with _waiting(_HOLDER) as pid:
        found["sandbox: the program that holds it"] = Idle.of([pid])
        found["sandbox: with its template and spares"] = Idle.of(tree(pid))
    return found


@contextlib.contextmanager
def _waiting(code: str) -> Iterator[int]:
    argv = [sys.executable, "-c", code]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        yield program.pid
        program.stdin.write("\n")
