"""Ends children of bubblewrap that wait forever, left by a host that was killed while it started a sandbox.

Bubblewrap's child waits on an eventfd until its parent has mapped its user, and only then arranges to die with the
parent. If the parent dies in between, together with the host, the child waits forever; no program ever runs in it. The
next host ends such children.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal

from sandbox_kernel.jail.core.guest_programs import start_of
from sandbox_kernel.jail.meter.process_tree import living, signal_same


@functools.lru_cache(maxsize=1)
def sweep_once() -> None:
    """Run ``sweep`` once. Called by the first sandbox of a process, while its own start is waited for."""
    sweep()


def sweep() -> list[int]:
    """End every such child that this user may end; returns their pids."""
    ended = []
    for name in os.listdir("/proc"):
        if name.isdigit() and _waits_for_nobody(name):
            for pid, started in living((int(name),)).items():
                signal_same(pid, started, signal.SIGKILL)
                ended.append(pid)
    return ended


def _waits_for_nobody(pid: str) -> bool:
    """Whether this process is an init that is still bubblewrap, started for us, and whose parent bubblewrap is gone."""
    command = _read(pid, "cmdline")
    if not is_our_bubblewrap(command.split(b"\0")):
        return False
    status = dict(line.split(b":\t", 1) for line in _read(pid, "status").splitlines() if b":\t" in line)
    # Bubblewrap itself has one pid here. Its child has two, and is the first process in its own namespace.
    numbers = status.get(b"NSpid", b"").split()
    parent = status.get(b"PPid", b"0").decode()
    return len(numbers) == 2 and numbers[1] == b"1" and _read(parent, "cmdline") != command


def is_our_bubblewrap(command: list[bytes]) -> bool:
    """Whether the command line names our program that becomes the init. After an exec it is a different one."""
    ours = {start_of(program).encode() for program in ("gate.gate", "gate.template")}
    return len(command) > 2 and command[1] == b"--args" and not ours.isdisjoint(command)


def _read(pid: str, name: str) -> bytes:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/{name}", "rb") as file:
        return file.read()
    return b""
