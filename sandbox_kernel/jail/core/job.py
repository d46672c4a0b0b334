"""What a job is, and how one ended: plain values. ``run_job.py`` runs a job."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence

from sandbox_kernel.errors import EnforcerFailed
from sandbox_kernel.ground.values import dataclass
from sandbox_kernel.jail.core.gate_messages import JobFile, Step, StepExit
from sandbox_kernel.jail.meter.reading import Reading
from sandbox_kernel.jail.run.ending import Ending
from sandbox_kernel.jail.streams.output import Capture

#: Processes of ours in each jail: the gate, which is the init of the namespace.
OWN_PROCESSES = 1

OnListener = Callable[[socket.socket], None]


class SpareGone(EnforcerFailed):
    """A spare was killed from outside before it got its order. Nothing ran; the caller can use another jail."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What to run, and its limits."""

    steps: Sequence[Step]
    files: Sequence[JobFile] = ()
    #: Open files for the first step. The caller closes them.
    descriptors: Sequence[int] = ()
    #: The hatch to host functions, for every step that has ``functions``. The caller closes it.
    hatch: int | None = None
    stdin: bytes | None = None
    #: A descriptor of the host that is copied to standard input.
    stdin_from: int | None = None
    #: Without ``stdin`` and ``stdin_from``: whether the user is asked for a line when the program waits for input.
    asks_user: bool = False
    timeout_s: float
    memory_bytes: int
    processes: int
    cpu_seconds: float | None = None
    gpu_memory_mb: int | None = None
    output_bytes: int
    #: Text at the start of stderr: the warnings of a compiler whose cached output is used.
    preamble: bytes = b""
    #: Whether a report ends the run. The exit code of the step that reported is then not waited for.
    ends_with_report: bool = False


@dataclass(frozen=True, kw_only=True)
class JobOutcome:
    """How a job ended.

    ``stopped_by`` says what stopped it; None: it ended by itself.
    """

    exits: tuple[StepExit, ...]
    stopped_by: Ending | None
    stdout: Capture
    stderr: Capture
    duration_s: float
    compile_s: float | None
    reading: Reading
    disk_full: bool
    #: The most memory on accelerators that was seen; None when it was not counted.
    gpu_peak_bytes: int | None = None
    metered_by: str
    #: What a step wrote to the channel. Trust it as much as the program that runs in the step.
    report: bytes = b""
    kept: tuple[bytes, ...] = ()

    @property
    def peak_bytes(self) -> int | None:
        """The highest memory use at one time.

        A meter that only samples misses peaks between two samples. The kernel records the largest process, which is the
        better figure then.
        """
        seen = self.reading.peak_bytes
        if seen is not None and not self.reading.refuses_memory:
            return seen
        return max((seen or 0, *(step.max_rss_bytes for step in self.exits))) or None
