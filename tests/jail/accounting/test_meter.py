"""The watchdog that stands in for control groups: it counts true memory, never punishes forks, and says what it saw."""

import contextlib
import errno
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from benchmarks.soak_faults import empty_groups
from sandbox_kernel import EnforcerFailed, ExecRequest, Language, ProcessBackend, ProcessConfig
from sandbox_kernel.backends.base import RunContext
from sandbox_kernel.jail.accounting import meter
from sandbox_kernel.jail.accounting.cgroups import find_hierarchies
from sandbox_kernel.jail.accounting.meter import CgroupMeter, Meter, counts_processes, make_meter
from sandbox_kernel.jail.accounting.processes import living, tree
from tests.waiting import until

MIB = 1 << 20


@contextlib.contextmanager
def gate(code: str) -> Iterator[int]:
    """A stand-in for the gate: its child runs the code and says when it is done; both then wait."""
    program = (
        "import os, signal\nread, write = os.pipe()\nif os.fork() == 0:\n"
        + "".join(f"  {line}\n" for line in code.splitlines())
        + "  os.write(write, b'x')\n  signal.pause()\nos.read(read, 1); print('ready', flush=True); signal.pause()"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    pids = tree(process.pid)
    try:
        yield process.pid
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def watch(pid: int, memory_bytes: int, processes: int = 32) -> Meter:
    meter = Meter()
    meter.attach(pid)
    meter.arm(memory_bytes, processes)
    return meter


def state(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]


def test_a_tree_beyond_its_memory_is_seen_and_stays_stopped_until_it_is_killed() -> None:
    with gate("b = b'x' * (120 << 20)") as pid:
        meter = watch(pid, 64 * MIB)
        assert meter.memory_is_exceeded()
        child = tree(pid)[1]
        fd = os.pidfd_open(child)
        until(lambda: state(child) == "T")  # the signal is on its way
        assert meter.read().memory_exceeded
        os.kill(child, signal.SIGKILL)
        assert select.select([fd], [], [], 10)[0]
        os.close(fd)


def test_a_tree_within_its_memory_is_left_alone() -> None:
    with gate("b = b'x' * (20 << 20)") as pid:
        meter = watch(pid, 128 * MIB)
        assert not meter.memory_is_exceeded()
        reading = meter.read()
        assert not reading.memory_exceeded
        assert reading.peak_bytes is not None and reading.peak_bytes > 20 * MIB


def test_forks_that_share_their_memory_are_not_killed_for_it() -> None:
    # Five processes that show 70 MB each and have 70 MB together.
    code = "b = b'x' * (60 << 20)\nfor _ in range(4):\n  if os.fork() == 0: signal.pause()"
    with gate(code) as pid:
        meter = watch(pid, 200 * MIB)
        assert not meter.memory_is_exceeded()
        assert "T" not in {state(child) for child in tree(pid)}, "somebody was stopped and not let go"
        assert meter.read().peak_bytes is not None


def test_memory_that_is_shared_but_no_process_owns_counts_once() -> None:
    code = "import mmap\nm = mmap.mmap(-1, 100 << 20)\nfor i in range(0, 100 << 20, 4096): m[i] = 1\nos.fork()"
    with gate(code) as pid:
        assert watch(pid, 64 * MIB).memory_is_exceeded()
        assert not watch(pid, 400 * MIB).memory_is_exceeded()


def test_a_full_house_is_told_and_a_crowd_is_to_be_ended() -> None:
    with gate("for _ in range(6):\n  if os.fork() == 0: signal.pause()") as pid:
        assert len(living(tree(pid))) == 8
        for processes, full, crowded in ((20, False, False), (8, True, False), (7, True, True)):
            meter = watch(pid, 512 * MIB, processes)
            meter.memory_is_exceeded()
            assert (meter.read().forks_refused, meter.too_many_processes()) == (full, crowded), processes


def test_cpu_time_counts_from_the_order_on_and_over_the_whole_tree() -> None:
    with gate("import time\nwhile time.process_time() < 0.4: pass") as pid:
        meter = watch(pid, 512 * MIB)
        assert meter.cpu_seconds() < 0.2, "what was used before the order is counted"
        fresh = Meter()
        fresh.attach(pid)
        assert fresh.cpu_seconds() >= 0.3


def test_the_first_process_is_the_root_of_what_is_watched() -> None:
    with gate("pass") as pid:
        meter = Meter()
        meter.attach(pid)
        meter.attach(1)
        meter.arm(1 << 40, 100)
        assert not meter.memory_is_exceeded()
        assert (meter.read().peak_bytes or 0) < 200 * MIB


def test_a_meter_of_nobody_reads_nothing() -> None:
    meter = Meter()
    meter.arm(1, 1)
    assert not meter.memory_is_exceeded()
    assert (meter.cpu_seconds(), meter.read().oom_kills, meter.members()) == (0.0, 0, None)
    meter.recount()
    meter.kill()
    assert meter.close()
    assert not meter.exact


def test_the_best_meter_of_the_host_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    if find_hierarchies() is not None:
        made = make_meter()
        assert isinstance(made, CgroupMeter) and made.exact
        assert made.close()
    monkeypatch.setattr(meter, "find_hierarchies", lambda: None)
    assert isinstance(make_meter(), Meter)
    assert not counts_processes()


@pytest.mark.skipif(find_hierarchies() is None, reason="no control group may be made here")
def test_a_group_tells_who_is_in_it_and_the_memory_that_it_took() -> None:
    meter = make_meter()
    with gate("b = b'x' * (40 << 20)") as pid:
        for member in tree(pid):
            meter.attach(member)
        meter.arm(256 * MIB, 16)
        assert set(meter.members() or ()) == set(tree(pid))
        assert not meter.memory_is_exceeded() and not meter.too_many_processes()
        assert meter.read().oom_kills == 0
    assert not meter.read().memory_exceeded
    until = time.monotonic() + 30
    while not meter.close():
        assert time.monotonic() < until


@pytest.mark.skipif(find_hierarchies() is None, reason="no control group can be made here")
@pytest.mark.slow
def test_a_run_whose_control_group_was_removed_is_ended_and_not_called_well(nothing_left: None) -> None:
    backend = ProcessBackend(ProcessConfig(pool_size=0))
    request = ExecRequest(
        language=Language.PYTHON, code="import time; print('up', flush=True); time.sleep(60)", timeout=60
    )
    with pytest.raises(EnforcerFailed, match="removed the sandbox's control group"):
        backend.run(request, RunContext(on_output=lambda *_: empty_groups() and None))
    assert backend.run(replace(request, code="print(1)")).ok


def test_memory_that_cannot_be_read_for_lack_of_descriptors_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = object.__new__(meter.CgroupMeter)
    counted._memory, counted._version, counted._open, counted._reading = "/group", 2, {}, threading.Lock()

    def usage(error: int) -> int:
        def refuse(path: str, *_: object) -> int:
            raise OSError(error, os.strerror(error), path)

        monkeypatch.setattr(os, "open", refuse)
        return counted.usage_bytes()

    assert [usage(error) for error in (errno.EMFILE, errno.ENFILE, errno.ENOENT)] == [0, 0, 0]
    with pytest.raises(PermissionError):
        usage(errno.EACCES)
