"""What a host that was killed while bubblewrap started leaves behind, and what the next one does about it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from sandbox_kernel.jail import bubblewrap_jail
from sandbox_kernel.jail.accounting.processes import living
from sandbox_kernel.jail.guest_programs import memory_file, start_of
from sandbox_kernel.jail.rules.bubblewrap import find_bwrap
from sandbox_kernel.jail.walls import GUEST


class Starting:
    """Bubblewrap, held in the moment after it made its child and before it speaks to it."""

    def __init__(self, inner: list[str]) -> None:
        blocked, self._block = os.pipe()
        info, told = os.pipe()
        options = ["--unshare-user", "--unshare-pid", "--die-with-parent", "--ro-bind", "/", "/"]
        options += ["--userns-block-fd", str(blocked), "--info-fd", str(told)]
        args = memory_file("arguments", "".join(f"{word}\0" for word in options).encode())
        command = [find_bwrap(), "--args", str(args), "--", *inner]
        self.bwrap = subprocess.Popen(command, pass_fds=(blocked, told, args))
        for fd in (blocked, told, args):
            os.close(fd)
        text = b""
        while b"}" not in text:
            text += os.read(info, 4096)
        os.close(info)
        self.child = int(text.split(b'"child-pid":')[1].split(b"}")[0].split(b",")[0])
        (self.started,) = living((self.child,)).values()

    @property
    def waits(self) -> bool:
        return living((self.child,)).get(self.child) == self.started

    def end(self) -> None:
        """End both, whatever is left of them."""
        if self.waits:
            os.kill(self.child, signal.SIGKILL)
        self.bwrap.kill()
        self.bwrap.wait()
        os.close(self._block)


@pytest.fixture
def starting() -> Iterator[Starting]:
    found = Starting([sys.executable, "-I", "-c", start_of("gate.gate"), GUEST])
    yield found
    found.end()


def gone(pid: int, started: int) -> bool:
    """Wait for the end of a process that is not our child."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        readable, _, _ = select.select([fd], [], [], 10)
    finally:
        os.close(fd)
    return bool(readable) or living((pid,)).get(pid) != started


@pytest.mark.slow
def test_a_child_whose_bubblewrap_was_killed_is_ended(starting: Starting) -> None:
    starting.bwrap.kill()
    starting.bwrap.wait()
    assert starting.waits
    assert starting.child in bubblewrap_jail.sweep()
    assert gone(starting.child, starting.started)


def test_a_sandbox_that_is_just_starting_is_left_alone(starting: Starting) -> None:
    assert starting.child not in bubblewrap_jail.sweep()
    assert starting.bwrap.pid not in bubblewrap_jail.sweep()
    assert starting.waits


def test_somebody_elses_bubblewrap_is_left_alone() -> None:
    other = Starting([sys.executable, "-c", "pass"])
    try:
        other.bwrap.kill()
        other.bwrap.wait()
        assert other.child not in bubblewrap_jail.sweep()
        assert other.waits
    finally:
        other.end()


def test_the_next_host_ends_what_the_last_one_left(starting: Starting) -> None:
    starting.bwrap.kill()
    starting.bwrap.wait()
    program = "from sandbox_kernel import Sandbox\nwith Sandbox() as box: print(box.run('print(1)', 'python').stdout)"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert said.stdout == "1\n\n"
    assert gone(starting.child, starting.started)


@pytest.mark.parametrize(
    "command",
    [[], [b"bwrap"], [b"bwrap", b"--args", b"5", b"--", b"sh"], [b"python3", b"-c", start_of("gate.gate").encode()]],
)
def test_other_commands_are_nobody_of_ours(command: list[bytes]) -> None:
    assert not bubblewrap_jail.is_our_bubblewrap(command)
