"""The second interrupt of a cell: who gets it, beside the code that the gate runs."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from sandbox_kernel.guest.gate.alive import ticks
from sandbox_kernel.guest.session.checkpoint_gate import CheckpointGate


@pytest.fixture
def worker() -> Iterator[subprocess.Popen[bytes]]:
    """A process that has computed for more than two clock ticks, and then reads its input."""
    burn = "import sys, time\nwhile time.process_time() < 0.1: pass\nprint('burnt', flush=True)\nsys.stdin.read()"
    made = subprocess.Popen([sys.executable, "-c", burn], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert made.stdout is not None
    assert made.stdin is not None
    assert made.stdout.readline() == b"burnt\n"
    yield made
    made.kill()
    made.wait()
    made.stdin.close()
    made.stdout.close()


@pytest.fixture
def gate(worker: subprocess.Popen[bytes]) -> Iterator[CheckpointGate]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield CheckpointGate(ours, worker.pid, lambda message: None)


def test_a_cell_that_slept_since_its_interrupt_gets_a_second_one(
    gate: CheckpointGate, worker: subprocess.Popen[bytes]
) -> None:
    gate.interrupted_at = ticks(f"{worker.pid}/task/{worker.pid}")
    assert gate.interrupt(again=True)
    assert worker.wait(60) in (-signal.SIGINT, 130, 1)


def test_a_cell_that_computed_since_its_interrupt_is_left_to_save_what_it_wants(
    gate: CheckpointGate, worker: subprocess.Popen[bytes]
) -> None:
    gate.interrupted_at = ticks(f"{worker.pid}/task/{worker.pid}") - 5
    assert not gate.interrupt(again=True)
    assert worker.stdin is not None
    worker.stdin.close()
    assert worker.wait(60) == 0


def test_a_process_that_is_gone_has_used_no_time() -> None:
    assert ticks(2**30) == 0
