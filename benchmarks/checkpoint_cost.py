"""Measures the cost of a session's checkpoints by the size of its heap, against fork and pickle of the same heap."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass

from sandbox_kernel.backends.process import ProcessBackend
from sandbox_kernel.session.open_session import open_session
from sandbox_kernel.session.session import Session

#: A program that measures ``os.fork`` (the minimum) and pickle (the way without forks), and prints JSON.
_PLAIN = """
import json, os, pickle, sys, time
heap = bytearray(b"1") * (int(sys.argv[1]) << 20)
forks, pickles = [], []
for _ in range(int(sys.argv[2])):
    began = time.perf_counter()
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    forks.append((time.perf_counter() - began) * 1e3)
    os.waitpid(pid, 0)
for _ in range(3):
    began = time.perf_counter()
    pickle.dumps(heap, 5)
    pickles.append((time.perf_counter() - began) * 1e3)
print(json.dumps([forks, pickles]))
"""


@dataclass(frozen=True)
class CheckpointCost:
    """Milliseconds to make a checkpoint (while the user does not wait), of the cell after it, and of a rollback."""

    forks: list[float]
    nexts: list[float]
    backs: list[float]


def settle(session: Session) -> float:
    """Return the milliseconds until the checkpoint after the last cell exists."""
    began = time.perf_counter()
    with session._supervisor.turn():
        return (time.perf_counter() - began) * 1e3


def heap_of(megabytes: int) -> str:
    """Return code that fills this much memory."""
    return f"a = bytearray(b'1') * ({megabytes} << 20)"


def checkpoint_cost(backend: ProcessBackend, code: str, rounds: int) -> CheckpointCost:
    """Run ``code``, which makes the heap, in a session, and measure its checkpoints."""
    with open_session(backend, memory_mb=6000, checkpoints=2) as session:
        made = session.run(code, timeout=300)
        assert made.ok, made
        cost = CheckpointCost([], [], [])
        for _ in range(rounds):
            began = time.perf_counter()
            session.run("pass")
            cost.nexts.append((time.perf_counter() - began) * 1e3)
            cost.forks.append(settle(session))
        for _ in range(5):
            settle(session)
            began = time.perf_counter()
            assert session.run("import os; os._exit(1)").rolled_back
            cost.backs.append((time.perf_counter() - began) * 1e3)
        return cost


def plain_cost(megabytes: int, rounds: int) -> tuple[list[float], list[float]]:
    """Return the milliseconds of ``os.fork`` and ``pickle.dumps`` in a plain program with the same heap."""
    argv = [sys.executable, "-c", _PLAIN, str(megabytes), str(rounds)]
    forks, pickles = json.loads(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)
    return forks, pickles
