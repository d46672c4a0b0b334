"""Signals belong to the cell while it runs and to nobody between cells, also when a thread of the cell's takes them."""

import os
import subprocess
import sys

import pytest

import sandbox_kernel

#: A process of its own: handlers and masks are the whole process's. The thread takes what the main thread does not.
PROGRAM = """
import os, signal, sys, threading, time
from sandbox_kernel.guest.session.signals import Signals

def await_late(number):
    deadline = time.monotonic() + 60
    while number not in signals._late:
        assert time.monotonic() < deadline, f"nobody took signal {number}"
        time.sleep(0.001)

def send(number):
    os.kill(os.getpid(), number)
    await_late(number)

rung = []
signal.signal(signal.SIGUSR1, lambda *_: rung.append("usr1"))
if "thread" in sys.argv:
    threading.Thread(target=threading.Event().wait, daemon=True).start()
else:
    await_late = lambda number: None
signals = Signals()
signals.hold()
signals.hold()
"""


def run(rest: str, *arguments: str) -> list[str]:
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM + rest, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(sandbox_kernel.__file__))},
    )
    assert found.returncode == 0, found.stderr
    return found.stdout.split()


LATE = """
send(signal.SIGINT)
send(signal.SIGUSR1)
signals.forget_interrupts()
assert rung == []
signals.release()
print(*rung, signal.getsignal(signal.SIGINT) is signal.default_int_handler, len(signal.pthread_sigmask(0, [])))
"""


@pytest.mark.parametrize("threads", [(), ("thread",)], ids=["alone", "beside a thread that takes signals"])
def test_a_late_interrupt_is_forgotten_and_other_signals_wait_for_the_next_cell(threads: tuple[str, ...]) -> None:
    assert run(LATE, *threads) == ["usr1", "True", "0"]


def test_an_interrupt_that_is_not_late_strikes_when_signals_are_released() -> None:
    rest = """
signals.forget_interrupts()
send(signal.SIGINT)
try:
    signals.release()
except KeyboardInterrupt:
    print("struck")
signals.hold()
signals.release()
print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
"""
    assert run(rest) == run(rest, "thread") == ["struck", "True"]


def test_a_handler_that_a_cell_sets_is_put_aside_and_put_back() -> None:
    rest = """
signals.release()
signal.signal(signal.SIGALRM, lambda *_: rung.append("alarm"))
signals.hold()
signal.raise_signal(signal.SIGALRM)
assert rung == []
signals.release()
print(*rung)
"""
    assert run(rest) == ["alarm"]
