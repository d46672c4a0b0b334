"""What a job is, and how one ended: plain values. ``run_job.py`` sees one through."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sandbox_kernel.errors import EnforcerFailed
from sandbox_kernel.jail.core.gate_messages import JobFile, Step, StepExit
from sandbox_kernel.jail.meter.reading import Reading
from sandbox_kernel.jail.run.ending import Ending
from sandbox_kernel.jail.streams.output import Capture

#: The gate, which is the init of the namespace and not the program's.
OWN_PROCESSES = 1

OnOutput = Callable[[str, str], None]
OnListener = Callable[[socket.socket], None]


class SpareGone(EnforcerFailed):
    """A waiting sandbox was killed from outside before it got its order: nothing ran, another one will do."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What to run and how much of everything it may use."""

    steps: Sequence[Step]
    files: Sequence[JobFile] = ()
    #: Open files for the first step; they stay the caller's.
    descriptors: Sequence[int] = ()
    stdin: bytes | None = None
    #: A descriptor of the host from which standard input is read as it comes.
    stdin_from: int | None = None
    #: Without either of these: whether the user is asked for a line whenever the program waits for one.
    asks_user: bool = False
    timeout_s: float
    memory_bytes: int
    processes: int
    cpu_seconds: float | None = None
    output_bytes: int
    #: What stands on stderr before the program begins: the warnings of a compiler that need not run again.
    preamble: bytes = b""
    #: A report is the last word: nobody asks for the exit code of a step that has reported.
    ends_with_report: bool = False


@dataclass(frozen=True, kw_only=True)
class JobOutcome:
    """How a job ended.

    ``stopped_by`` says what ended it; None: it ended itself.
    """

    exits: tuple[StepExit, ...]
    stopped_by: Ending | None
    stdout: Capture
    stderr: Capture
    duration_s: float
    compile_s: float | None
    reading: Reading
    disk_full: bool
    metered_by: str
    #: What a step that reports said of itself; as trustworthy as the program that runs there.
    report: bytes = b""
    kept: tuple[bytes, ...] = ()

    @property
    def peak_bytes(self) -> int | None:
        """The most memory that was in use at once.

        A meter that only looks from time to time (one that can merely refuse) misses what comes and goes between two
        looks; the kernel remembers the largest process, which is the better answer then.
        """
        seen = self.reading.peak_bytes
        if seen is not None and not self.reading.refuses_memory:
            return seen
        return max((seen or 0, *(step.max_rss_bytes for step in self.exits))) or None
