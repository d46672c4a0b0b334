"""Runs one job in one jail: feeds it, watches it, ends it and returns the outcome.

It always ends the jail, so that background processes end with their program, and always returns the output. It waits
until the jail is gone, unless the program had reported its end, or had left no process, before it was killed.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from sandbox_kernel.errors import EnforcerFailed
from sandbox_kernel.jail.accounting.meter import Reading
from sandbox_kernel.jail.ending import Ending
from sandbox_kernel.jail.gate_messages import (
    MAX_KEPT,
    MAX_KEPT_BYTES,
    MAX_REPORT,
    JobFile,
    Step,
    StepExit,
    answer,
    broken,
    question,
    read_kept,
    receive_listener,
    receive_with_files,
    send_order,
    step_exit,
)
from sandbox_kernel.jail.input_prompts import InputPrompts, InputWatch
from sandbox_kernel.jail.jail import Jail
from sandbox_kernel.jail.spawner import bury
from sandbox_kernel.jail.streams import CHUNK, Capture, Feeder
from sandbox_kernel.jail.watch_loop import Alarm, LimitWatch, MemoryLimit, WatchLoop
from sandbox_kernel.model import UNHEARD, Events
from sandbox_kernel.util.values import dataclass

if TYPE_CHECKING:
    from _typeshed import HasFileno

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
    #: The call socket for host functions, for every step that has ``functions``. The caller closes it.
    call_socket: int | None = None
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
    """How a job ended: evidence, which nobody has judged yet. Not every job is a run that has a result."""

    exits: tuple[StepExit, ...]
    #: What stopped it; None: it ended by itself.
    stopped_by: Ending | None
    stdout: Capture
    stderr: Capture
    duration_s: float
    compile_s: float | None
    reading: Reading
    disk_full: bool
    #: The most memory on accelerators that was seen; None when it was not counted.
    gpu_peak_bytes: int | None = None
    #: What a step wrote to the channel. Trust it as much as the program that runs in the step.
    report: bytes = b""
    kept: tuple[bytes, ...] = ()

    @property
    def peak_bytes(self) -> int | None:
        """The highest memory use at one time: the kernel's largest process where a meter that samples saw less."""
        seen = self.reading.peak_bytes
        if seen is not None and not self.reading.refuses_memory:
            return seen
        return max((seen or 0, *(step.max_rss_bytes for step in self.exits))) or None


def run_job(
    jail: Jail,
    job: Job,
    events: Events = UNHEARD,
    *,
    on_listener: OnListener | None = None,
    stop: HasFileno | None = None,
) -> JobOutcome:
    """Send an order to a waiting jail and watch it to its end. Afterwards the jail is dead; its work folder is open.

    ``on_input`` is called when a step that reports sends a prompt, or when the program of a job with ``asks_user``
    waits for a line; ``on_listener`` with the listening socket in the jail's network, where a proxy can serve.

    Raises ``EnforcerFailed`` when the jail failed before or while it ran the program, and ``SpareGone`` when it was
    dead before it got its order.
    """
    run = _Run(jail, job, events, stop)
    try:
        run.begin(on_listener)
        run.watch()
        return run.outcome()
    finally:
        run.close()
        box = jail.take_box()
        rest = jail.abandon() if run.is_over else None
        if rest is not None:
            bury(rest)
        else:
            jail.destroy()
        jail.box_fd = box


class _Run(WatchLoop):
    """The loop and the state of one run; used by ``run_job`` only."""

    def __init__(self, jail: Jail, job: Job, events: Events, stop: HasFileno | None) -> None:
        on_output, on_input = events.on_output, events.on_input
        memory = MemoryLimit(jail.meter, job.memory_bytes)
        super().__init__(LimitWatch(jail, memory, job.cpu_seconds, events.on_usage, job.gpu_memory_mb))
        self.jail, self.job, self.stop = jail, job, stop
        self.captures: dict[int, Capture] = {}
        for fd, name in ((jail.stdout_fd, "stdout"), (jail.stderr_fd, "stderr")):
            os.set_blocking(fd, False)
            self.captures[fd] = Capture(job.output_bytes, None if on_output is None else partial(on_output, name))
        asks = job.asks_user and on_input is not None and job.stdin is None and job.stdin_from is None
        self.feeder = Feeder(jail.stdin_fd, job.stdin, job.stdin_from, held=asks)
        jail.stdin_fd = -1
        self.questions = (
            InputPrompts(self.selector, on_input, self._drain, self._cancelled) if on_input is not None else None
        )
        self.input = InputWatch(self.feeder, self.selector, self.questions) if asks and self.questions else None
        self.gate = GateReplies(jail, job.steps)
        self.channel = ReportChannel(jail.channel, self.selector, self.questions)
        #: Whether nothing that the program did can come any more: it reported its end, or no process of it is left. No
        #: limit or caller stopped it.
        self.is_over = False
        self.started_at = 0.0
        self.ended_at = 0.0

    def begin(self, on_listener: OnListener | None) -> None:
        """Send the order. The time limit counts from here."""
        jail, job = self.jail, self.job
        self.captures[jail.stderr_fd].feed(job.preamble)
        jail.meter.arm(job.memory_bytes, job.processes + OWN_PROCESSES)
        self.started_at = time.monotonic()
        jail.control.settimeout(job.timeout_s)
        ordered = False
        try:
            send_order(
                jail.control, job.steps, job.files, listener=on_listener is not None, descriptors=job.descriptors,
                call_socket=job.call_socket,
            )  # fmt: skip
            ordered = True
            if on_listener is not None:
                on_listener(receive_listener(jail.control))
        except TimeoutError:
            self.end(Ending.TIMEOUT)
        except OSError as error:
            # An order that did not arrive completely is not begun.
            kind = SpareGone if isinstance(error, BrokenPipeError) and not ordered else EnforcerFailed
            raise kind("gate", f"the waiting sandbox was gone when its order was sent: {error}") from None
        jail.control.setblocking(False)

    def watch(self) -> None:
        """Run the loop until the last step ended, a limit or the caller stopped it, or the jail is gone."""
        jail = self.jail
        for fd in self.captures:
            self.when_readable(fd, self._read_output)
        self.when_readable(jail.control, self.gate.read)
        self.when_readable(jail.init_fd, self.gate.died)
        if self.stop is not None:
            self.when_readable(self.stop, self._cancelled)
        self.feeder.attend(self.selector)
        if self.job.ends_with_report:
            self.channel.listen()
        self.loop()
        self.ended_at = time.monotonic()
        self.is_over = (self.channel.reported or self.gate.alone) and self.ending is None

    def over(self) -> bool:
        """See ``WatchLoop``."""
        return self.gate.finished or self.channel.reported

    def alarms(self) -> Iterable[Alarm]:
        """Return the alarm of the time limit. The limit is paused while an input prompt is open."""
        if self.questions is not None and self.questions.open:
            return ()
        asked_s = 0.0 if self.questions is None else self.questions.asked_s
        return (Alarm(self.started_at + self.job.timeout_s + asked_s, partial(self.end, Ending.TIMEOUT)),)

    def at_tick(self) -> None:
        """See ``WatchLoop``."""
        if self.input is not None:
            self.input.check(self.jail.init_pid)

    def outcome(self) -> JobOutcome:
        """Kill what is left, read the remaining output, and read the meter."""
        jail, gate = self.jail, self.gate
        self.selector.close()
        self.feeder.close()
        self.limits.check_disk(last=True)
        jail.meter.recount()
        if gate.lost and not (gate.begun or self.channel.has_written or self.ending):
            gate.read(jail.control.fileno())
        jail.kill()
        if not self.is_over:
            jail.wait_dead()
        for fd, capture in self.captures.items():
            # Every writer is dead, so the pipe ends (output from before a report is there already). The time bound is
            # for the case that another process got a copy of the descriptor.
            bound = time.monotonic() + 5.0
            with contextlib.suppress(OSError):
                while (data := os.read(fd, CHUNK)) and time.monotonic() < bound:
                    capture.feed(data)
            capture.finish()
        stdout, stderr = self.captures.values()
        reading = jail.meter.read()
        # A program that printed has begun, although the gate was killed before it could say so.
        begun = gate.begun or self.channel.has_written or gate.exits or stdout.total
        if gate.lost and not (begun or self.ending or reading.memory_exceeded):
            said = stderr.text.strip().splitlines()
            reason = f": {said[-1][:300]}" if said else ""
            raise EnforcerFailed(
                jail.walls.enforcer or "none", f"the sandbox ended before the program began, nothing was run{reason}"
            )
        return JobOutcome(
            exits=tuple(gate.exits),
            stopped_by=self.ending,
            stdout=stdout,
            stderr=stderr,
            duration_s=self.ended_at - self.started_at,
            compile_s=gate.compiled_at - self.started_at if gate.compiled_at is not None else None,
            reading=reading,
            disk_full=self.limits.disk_full,
            gpu_peak_bytes=self.limits.gpu_peak_bytes(),
            report=self.channel.report() if any(step.reports for step in self.job.steps) else b"",
            kept=gate.kept(),
        )

    def close(self) -> None:
        """Release what the run still holds, however it ended. May be called twice."""
        self.selector.close()
        self.feeder.close()
        if self.questions is not None:
            self.questions.close()
        self.gate.close()

    def _read_output(self, fd: int) -> None:
        try:
            data = os.read(fd, CHUNK)
        except BlockingIOError:
            return
        if data:
            self.captures[fd].feed(data)
        else:
            self.selector.unregister(fd)

    def _drain(self) -> None:
        """Read the output from before a prompt, so that it is shown first; a program that goes on is not waited for."""
        for fd, capture in self.captures.items():
            with contextlib.suppress(BlockingIOError):
                capture.feed(os.read(fd, CHUNK))

    def _cancelled(self, fd: int = -1) -> None:
        self.end(Ending.CANCEL)


class GateReplies:
    """The state of a job, from its gate's messages. The loop calls ``read`` and ``died`` when a descriptor is ready."""

    def __init__(self, jail: Jail, steps: Sequence[Step]) -> None:
        self._jail, self._steps = jail, steps
        self._kept_fds: list[int] = []
        self._asked = len([name for step in steps for name in step.keeps])
        self.begun = False
        self.exits: list[StepExit] = []
        #: When the last compiler step ended.
        self.compiled_at: float | None = None
        #: Whether no more messages will come.
        self.finished = False
        #: Whether nothing but the gate runs any more.
        self.alone = False
        #: Whether the jail ended by itself, for a reason that the host does not know.
        self.lost = False

    def read(self, fd: int) -> None:
        """Read the gate's messages. Raises ``EnforcerFailed`` when the gate could not build a wall."""
        try:
            data, descriptors = receive_with_files(self._jail.control, 65536, MAX_KEPT)
            self._kept_fds += descriptors
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.finished = self.lost = True
            return
        if len(self._kept_fds) > self._asked:
            raise EnforcerFailed("gate", "unexpected files came out of the jail; it was ended")
        for message in self._jail.inbox.feed(data):
            if message["op"] == "started":
                self.begun = True
            elif message["op"] == "exit":
                end = step_exit(message)
                if len(self.exits) >= len(self._steps):
                    raise EnforcerFailed("gate", "more steps ended in the jail than it was given; it was ended")
                if self._steps[len(self.exits)].compiles:
                    self.compiled_at = time.monotonic()
                self.exits.append(end)
                self.finished = end.code != 0 or len(self.exits) >= len(self._steps)
                self.alone = self.finished and end.alone
            elif message["op"] == "broken":
                enforcer = self._jail.walls.enforcer or "none"
                raise EnforcerFailed(enforcer, f"a wall could not be built, nothing was run: {broken(message)}")

    def died(self, fd: int) -> None:
        """The gate ended."""
        self.finished = self.lost = True

    def kept(self) -> tuple[bytes, ...]:
        """Return the files that the steps handed over, all or none of them."""
        fds, self._kept_fds = self._kept_fds, []
        kept = read_kept(fds, MAX_KEPT_BYTES)
        return kept if len(kept) == self._asked else ()

    def close(self) -> None:
        """Close files that were not used. May be called twice."""
        read_kept(self._kept_fds, 0)
        self._kept_fds = []


class ReportChannel:
    """The channel of a step that reports: its prompts, then its report. Without ``questions`` all is the report."""

    def __init__(self, sock: socket.socket, selector: selectors.BaseSelector, questions: InputPrompts | None) -> None:
        self._socket, self._selector, self._questions = sock, selector, questions
        #: Whether the step wrote something. It has then begun, even if the gate has not reported that yet.
        self.has_written = False
        #: Whether the step has reported. After that it would only shut down, and killing it is faster.
        self.reported = False

    def listen(self) -> None:
        """Wait for the next message of the step. Not called while a prompt of the step is open."""
        self._selector.register(self._socket, selectors.EVENT_READ, self._on_readable)

    def _on_readable(self, fd: int) -> None:
        try:
            said = self._socket.recv(MAX_REPORT, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except OSError:
            said = b""
        self._selector.unregister(fd)
        self.has_written = self.has_written or bool(said)
        prompt = question(said) if self._questions is not None else None
        if self._questions is not None and prompt is not None:
            self._socket.recv(MAX_REPORT)
            self._questions.ask(prompt, self._answered)
        else:
            self.reported = bool(said)

    def _answered(self, text: str | None) -> None:
        with contextlib.suppress(OSError):  # the step is gone or does not read: its end or the time limit will end it
            self._socket.send(answer(text), socket.MSG_DONTWAIT)
        self.listen()

    def report(self) -> bytes:
        """Return what the step wrote last. Called when it is over."""
        self._socket.setblocking(False)
        with contextlib.suppress(OSError):
            return self._socket.recv(MAX_REPORT)
        return b""
