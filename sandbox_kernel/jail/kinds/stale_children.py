"""Bubblewrap's children that nobody will ever speak to, left by a host that was killed while it started a sandbox.

Bubblewrap's child waits on an eventfd until its parent has mapped its user, and binds its life to the parent only
afterwards. A parent that dies in between (with the host that it is bound to) leaves a child that waits for ever; no
program ever runs in it. Nothing can be done about it at that moment, so the next host ends what it finds.
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
    """Called by the first sandbox of a process, which has its own start to wait for."""
    sweep()


def sweep() -> list[int]:
    """End every such child that we may end; returns their numbers."""
    ended = []
    for name in os.listdir("/proc"):
        if name.isdigit() and _waits_for_nobody(name):
            for pid, started in living((int(name),)).items():
                signal_same(pid, started, signal.SIGKILL)
                ended.append(pid)
    return ended


def _waits_for_nobody(pid: str) -> bool:
    """Whether this is an init that still is bubblewrap, started for us, without the bubblewrap that made it."""
    command = _read(pid, "cmdline")
    if not is_our_bubblewrap(command.split(b"\0")):
        return False
    status = dict(line.split(b":\t", 1) for line in _read(pid, "status").splitlines() if b":\t" in line)
    # Bubblewrap itself has one number here; its child has two, and is the first in its own namespace.
    numbers = status.get(b"NSpid", b"").split()
    parent = status.get(b"PPid", b"0").decode()
    return len(numbers) == 2 and numbers[1] == b"1" and _read(parent, "cmdline") != command


def is_our_bubblewrap(command: list[bytes]) -> bool:
    """By its command line, which names the program of ours that becomes the init; an exec replaces it."""
    ours = {start_of(program).encode() for program in ("gate.gate", "gate.template")}
    return len(command) > 2 and command[1] == b"--args" and not ours.isdisjoint(command)


def _read(pid: str, name: str) -> bytes:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/{name}", "rb") as file:
        return file.read()
    return b""
