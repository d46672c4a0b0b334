"""Probes of what a cell can reach: harmless canaries of our own, on this machine only."""

from __future__ import annotations

import os
import random
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from benchmarks.kernel_client import RunningKernel
from benchmarks.kernel_finding import Feature, Finding, works
from benchmarks.kernel_programs import Programs

#: A variable in the environment of every probed kernel; a cell that can print it could print a real secret.
CANARY_ENVIRONMENT = {"CANARY": "seen"}


def escapes(kernel: RunningKernel, programs: Programs) -> dict[str, bool]:
    """What a cell could do: read and write a file of ours, connect to us, see the environment and processes."""
    with tempfile.TemporaryDirectory(prefix="canary-") as folder, socket.create_server(("127.0.0.1", 0)) as listener:
        file = Path(folder) / "file"
        file.write_text("secret")
        filled = {"@FILE@": str(file), "@PORT@": str(listener.getsockname()[1]), "@PID@": str(os.getpid())}
        code = programs.escape
        for name, value in filled.items():
            code = code.replace(name, value)
        run = kernel.run(code, expected="processes ", patience=30)
        lines = [line.split() for line in run.text().splitlines()]
        said = {words[0]: words[1] == "yes" for words in lines if len(words) == 2}
        # The effect seen from outside counts, not the output of the cell.
        return said | {"write": file.with_name("file.written").exists()}


def held(what: str) -> Callable[[RunningKernel, Programs], Finding]:
    """A probe that is passed when the cell could not do ``what``."""

    def probe(kernel: RunningKernel, programs: Programs) -> Finding:
        found = escapes(kernel, programs)
        return works(not found[what]) if what in found else Finding("–", "the probe did not run")

    return probe


def no_orphans(kernel: RunningKernel, programs: Programs) -> Finding:
    """Start a process in its own session from a cell, then kill the kernel as a server does."""
    mark = f"{3600 + random.random():.9f}"
    kernel.run(programs.leave_child.replace("@MARK@", mark), expected="left")
    kernel.kill()
    deadline = time.monotonic() + 3
    while (orphans := _sleepers(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for orphan in orphans:
        orphan.kill()
    return works(not orphans)


def _sleepers(mark: str) -> list[psutil.Process]:
    return [process for process in psutil.process_iter(["cmdline"]) if mark in (process.info["cmdline"] or [])]


WALLS = (
    Feature("a cell cannot read a file that is not its own", held("read")),
    Feature("… nor write one", held("write")),
    Feature("… nor connect to a server on this machine", held("connect")),
    Feature("… nor see the environment of the server", held("environment")),
    Feature("… nor see other processes", held("processes")),
    Feature("a killed kernel leaves no process behind", no_orphans, ends_kernel=True),
)
