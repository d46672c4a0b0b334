"""Processes as the gate of a session holds them, beside the code that the gate runs."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from sandbox_kernel.guest.gate import alive
from sandbox_kernel.guest.gate.alive import descendants as processes
from sandbox_kernel.guest.session import held as held_processes
from sandbox_kernel.guest.session.held import Held, Refused, await_all, end_all, makes_no_more_calls, signal_same

#: Its first thread ends while another one goes on; it says when that is so.
WITHOUT_ITS_FIRST_THREAD = """
import ctypes, os, platform, threading, time
def stay():
    while open('/proc/self/stat').read().rpartition(')')[2].split()[0] != 'Z': time.sleep(0.001)
    print('Z', flush=True); time.sleep(60); os._exit(0)
threading.Thread(target=stay).start()
ctypes.CDLL(None).syscall({'x86_64': 60, 'aarch64': 93}[platform.machine()], 0)
"""


#: In clock ticks since the machine was started.
LATER = 1 << 60


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    made = subprocess.Popen(["sleep", "60"])
    yield made
    made.kill()
    made.wait()


@pytest.fixture(params=["python's own", "for a python that has none"])
def calls(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param != "python's own":
        monkeypatch.delattr(os, "pidfd_open")
        monkeypatch.delattr(signal, "pidfd_send_signal")


@pytest.mark.usefixtures("calls")
def test_a_child_is_held_until_it_ends_although_nobody_collects_it(child: subprocess.Popen[bytes]) -> None:
    held = Held(child.pid, parents=(os.getpid(),), worker=0, before=LATER)
    assert held.alive
    held.send(signal.SIGKILL)
    await_all([held.fd], time.monotonic() + 10.0)
    assert not held.alive
    assert child.pid not in processes(os.getpid())
    held.close()


def test_what_is_no_child_of_the_runner_is_refused(child: subprocess.Popen[bytes]) -> None:
    for pid, parents in ((child.pid, (1,)), (1, (os.getpid(),)), (os.getpid(), (os.getppid(),)), (0, (0,)), (-1, (0,))):
        with pytest.raises(Refused):
            Held(pid, parents=parents, worker=0, before=LATER)
    for pid in (1 << 31, 1 << 70):
        with pytest.raises(Refused):
            Held(pid, parents=(os.getpid(),), worker=0, before=LATER)
    with pytest.raises(Refused, match="no process of its own"):
        Held(child.pid, parents=(os.getpid(),), worker=child.pid, before=LATER)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(Refused, match="no child"):
        Held(child.pid, parents=(1,), worker=0, before=LATER)
    assert len(os.listdir("/proc/self/fd")) == before


def test_one_that_is_younger_than_the_claim_is_refused(child: subprocess.Popen[bytes]) -> None:
    now = int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))
    Held(child.pid, parents=(os.getpid(),), worker=0, before=now).close()
    with pytest.raises(Refused, match="younger"):
        Held(child.pid, parents=(os.getpid(),), worker=0, before=alive.look(child.pid).started - 1)


def test_one_that_has_ended_is_refused() -> None:
    ended = subprocess.Popen(["true"])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(Refused, match="ended"):
        Held(ended.pid, parents=(os.getpid(),), worker=0, before=LATER)
    ended.wait()


def test_a_signal_for_a_process_reaches_none_that_got_its_number_since(child: subprocess.Popen[bytes]) -> None:
    started = alive.look(child.pid).started
    signal_same(child.pid, started - 1, signal.SIGKILL)
    assert child.poll() is None
    signal_same(child.pid, started, signal.SIGKILL)
    assert child.wait(10) == -signal.SIGKILL


def test_a_process_lives_and_makes_calls_as_long_as_any_of_its_threads_does() -> None:
    with subprocess.Popen([sys.executable, "-c", WITHOUT_ITS_FIRST_THREAD], stdout=subprocess.PIPE) as half:
        assert half.stdout is not None
        assert half.stdout.readline() == b"Z\n"
        assert half.pid in processes(os.getpid()) and not makes_no_more_calls(half.pid)
        held = Held(half.pid, parents=(os.getpid(),), worker=0, before=LATER)
        assert held.alive
        held.send(signal.SIGKILL)
        await_all([held.fd], time.monotonic() + 10.0)
        assert not held.alive
        held.close()
        assert half.pid not in processes(os.getpid())
        assert makes_no_more_calls(half.pid), "it has ended, and was not collected"
    assert makes_no_more_calls(half.pid), "it is gone"


def test_a_process_that_sleeps_or_computes_makes_calls(child: subprocess.Popen[bytes]) -> None:
    assert not makes_no_more_calls(child.pid)
    assert not makes_no_more_calls(os.getpid())


@pytest.mark.parametrize("looks", [0, 20])
def test_a_child_that_was_ended_quickly_makes_no_more_calls_however_long_that_takes(
    looks: int, child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_processes, "LOOKS_AT_ONCE", looks)
    before = len(os.listdir("/proc/self/fd"))
    started = {child.pid: alive.look(child.pid).started}
    end_all(started, time.monotonic() + 60, lambda: makes_no_more_calls(child.pid))
    assert makes_no_more_calls(child.pid)
    assert makes_no_more_calls(child.pid)
    assert len(os.listdir("/proc/self/fd")) == before
    assert child.wait(60) == -signal.SIGKILL
