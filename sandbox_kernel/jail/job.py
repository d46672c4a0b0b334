"""Run one job in one jail: feed it, watch it, end it, and say what happened.

``run_job`` blocks the calling thread in one selector loop; asynchronous callers run it in a thread of their own. It
always ends the jail, so that background children end with their program, and it always returns what was printed. It
waits until the jail is gone, unless the program had reported its end before it was killed.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sandbox_kernel.errors import EnforcerFailed
from sandbox_kernel.jail.asking import Asking, OnInput
from sandbox_kernel.jail.control import (
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
    send_order,
    step_exit,
)
from sandbox_kernel.jail.jail import Jail
from sandbox_kernel.jail.meter import TICK_S, USAGE_S, OnUsage
from sandbox_kernel.jail.pump import CHUNK, Capture, Feeder
from sandbox_kernel.jail.reading import Reading
from sandbox_kernel.jail.undertaker import bury

#: The gate, which is the init of the namespace and not the program's.
OWN_PROCESSES = 1

OnOutput = Callable[[str, str], None]
OnListener = Callable[[socket.socket], None]


class SpareGone(EnforcerFailed):
    """A waiting sandbox was killed from outside before it got its order: nothing ran, another one will do."""


class Stop:
    """A stop sign that a selector can see and any thread can raise."""

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.Lock()
        self.raised = False

    def fileno(self) -> int:
        """For ``selectors``."""
        return self._fd

    def set(self) -> None:
        """Raise it; may be called twice, from any thread, and after the run is over."""
        with self._lock:
            self.raised = True
            if self._fd >= 0:
                os.eventfd_write(self._fd, 1)

    def close(self) -> None:
        """Give back the descriptor; may be called twice."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
            self._fd = -1


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
class Outcome:
    """How a job ended.

    ``stopped_by`` names who ended it: timeout, cpu, memory, processes, disk, cancel; None: it ended itself.
    """

    exits: tuple[StepExit, ...]
    stopped_by: str | None
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


def run_job(
    jail: Jail,
    job: Job,
    *,
    on_output: OnOutput | None = None,
    on_listener: OnListener | None = None,
    stop: Stop | None = None,
    on_usage: OnUsage | None = None,
    on_input: OnInput | None = None,
) -> Outcome:
    """Give a waiting jail its order and see it through; the jail is dead afterwards, its work folder still open.

    ``on_input`` is asked, on a thread of its own, what a step that reports asks of its user; meanwhile its time stands.
    """
    run = _Run(jail, job, on_output, stop, on_usage, on_input)
    try:
        run.begin(on_listener)
        run.watch()
        return run.end()
    finally:
        run.close()
        box = jail.take_box()
        rest = jail.abandon() if run.reported else None
        if rest is not None:
            bury(rest)
        else:
            jail.destroy()
        jail.box_fd = box


class _Run:
    """The state of one run; lives inside ``run_job``."""

    def __init__(
        self,
        jail: Jail,
        job: Job,
        on_output: OnOutput | None,
        stop: Stop | None,
        on_usage: OnUsage | None,
        on_input: OnInput | None,
    ) -> None:
        self.jail, self.job, self.stop, self.on_usage, self.on_input = jail, job, stop, on_usage, on_input
        self.asking: Asking | None = None
        self.deadline = 0.0
        self.next_usage = 0.0
        self.captures: dict[int, Capture] = {}
        for fd, name in ((jail.stdout_fd, "stdout"), (jail.stderr_fd, "stderr")):
            os.set_blocking(fd, False)
            emit = None if on_output is None else _emitter(on_output, name)
            self.captures[fd] = Capture(job.output_bytes, emit)
        self.feeder = Feeder(jail.stdin_fd, job.stdin, job.stdin_from)
        jail.stdin_fd = -1
        self.exits: list[StepExit] = []
        self.kept_fds: list[int] = []
        self.stopped_by: str | None = None
        self.begun = False
        self.finished = False
        #: The program said how it ended, and nobody has stopped it.
        self.reported = False
        #: The jail has ended by itself, and not because of anything that we know of.
        self.lost = False
        self.disk_full = False
        self.memory_alarm = False
        self.started = 0.0
        self.ended = 0.0
        self.compile_s: float | None = None
        self.selector = selectors.DefaultSelector()

    def begin(self, on_listener: OnListener | None) -> None:
        """Send the order; the clock runs from here."""
        jail, job = self.jail, self.job
        self.captures[jail.stderr_fd].feed(job.preamble)
        jail.meter.arm(job.memory_bytes, job.processes + OWN_PROCESSES)
        self.started = time.monotonic()
        jail.control.settimeout(job.timeout_s)
        try:
            self._send(listener=on_listener is not None)
            if on_listener is not None:
                on_listener(receive_listener(jail.control))
        except TimeoutError:
            self.stopped_by = "timeout"
        except OSError as error:
            raise EnforcerFailed("gate", f"the waiting sandbox was gone when it got its order: {error}") from None
        jail.control.setblocking(False)

    def _send(self, *, listener: bool) -> None:
        """Hand over the order; what did not arrive whole was not begun."""
        job = self.job
        try:
            send_order(self.jail.control, job.steps, job.files, listener=listener, descriptors=job.descriptors)
        except BrokenPipeError as error:
            raise SpareGone("gate", f"the waiting sandbox was gone when it got its order: {error}") from None

    def watch(self) -> None:
        """The loop: until the last step ended, something stopped it, or the jail is gone."""
        watch, jail, job = self.selector, self.jail, self.job
        for fd in self.captures:
            watch.register(fd, selectors.EVENT_READ, self._read_output)
        watch.register(jail.control, selectors.EVENT_READ, self._read_control)
        watch.register(jail.init_fd, selectors.EVENT_READ, self._init_died)
        event = jail.meter.event_fd()
        if event is not None:
            watch.register(event, selectors.EVENT_READ, self._out_of_memory)
        if self.stop is not None:
            watch.register(self.stop.fileno(), selectors.EVENT_READ, self._cancelled)
        self._feed()
        if job.ends_with_report:
            watch.register(jail.channel, selectors.EVENT_READ, self._reported)
        self.deadline = self.started + job.timeout_s
        next_tick = self.started
        while not self.finished and self.stopped_by is None:
            now = time.monotonic()
            if now >= self.deadline and self.asking is None:
                self.stopped_by = "timeout"
                break
            if now >= next_tick:
                next_tick = now + TICK_S
                self._tick()
            until = next_tick if self.asking is not None else min(self.deadline, next_tick)
            for key, _ in watch.select(max(0.0, until - time.monotonic())):
                key.data(key.fd)
        self.ended = time.monotonic()
        self.reported = self.reported and self.stopped_by is None

    def end(self) -> Outcome:
        """Kill what is left, drain what was printed, and read the meters."""
        jail = self.jail
        self.selector.close()
        self.feeder.close()
        self._look_at_disk(last=True)
        jail.meter.last_look()
        if self.lost and not self.begun and self.stopped_by is None:
            self._read_control(jail.control.fileno())
        jail.kill()
        if not self.reported:
            jail.wait_dead()
        for fd, capture in self.captures.items():
            # Every writer is dead, so the pipe ends (what was printed before a report is there already); the bound is
            # for a descriptor that somehow got out.
            bound = time.monotonic() + 5.0
            with contextlib.suppress(OSError):
                while (data := os.read(fd, CHUNK)) and time.monotonic() < bound:
                    capture.feed(data)
            capture.finish()
        stdout, stderr = self.captures.values()
        reading = jail.meter.read()
        if self.lost and not (self.begun or self.exits or self.stopped_by or reading.memory_exceeded):
            said = stderr.text.strip().splitlines()
            reason = f": {said[-1][:300]}" if said else ""
            raise EnforcerFailed(
                jail.walls.enforcer or "none", f"the sandbox ended before the program began, nothing was run{reason}"
            )
        return Outcome(
            exits=tuple(self.exits),
            stopped_by=self.stopped_by,
            stdout=stdout,
            stderr=stderr,
            duration_s=self.ended - self.started,
            compile_s=self.compile_s,
            reading=reading,
            disk_full=self.disk_full,
            metered_by=jail.meter.mechanism,
            report=self._report(),
            kept=self._read_kept(),
        )

    def _report(self) -> bytes:
        if not any(step.reports for step in self.job.steps):
            return b""
        self.jail.channel.setblocking(False)
        with contextlib.suppress(OSError):
            return self.jail.channel.recv(MAX_REPORT)
        return b""

    def _tick(self) -> None:
        meter, job = self.jail.meter, self.job
        self.jail.check_limits()
        if (self.memory_alarm or meter.event_fd() is None) and meter.memory_is_exceeded():
            self.stopped_by = "memory"
        elif meter.too_many_processes():
            self.stopped_by = "processes"
        elif job.cpu_seconds is not None and meter.cpu_seconds() > job.cpu_seconds:
            self.stopped_by = "cpu"
        elif self._look_at_disk():
            self.stopped_by = "disk"
        if self.on_usage is not None and time.monotonic() >= self.next_usage:
            self.next_usage = time.monotonic() + USAGE_S
            self.on_usage(meter.usage_bytes(), job.memory_bytes)

    def _look_at_disk(self, *, last: bool = False) -> bool:
        """Remember when the work folder was full; true when it holds more than it may."""
        disk = self.jail.disk(last=last)
        self.disk_full = self.disk_full or disk.full
        return disk.over

    def _read_output(self, fd: int) -> None:
        try:
            data = os.read(fd, CHUNK)
        except BlockingIOError:
            return
        if data:
            self.captures[fd].feed(data)
        else:
            self.selector.unregister(fd)

    def _reported(self, fd: int) -> None:
        """The step has said how it ended; what it would still do is take itself down, and killing it is faster."""
        try:
            said = self.jail.channel.recv(MAX_REPORT, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except OSError:
            said = b""
        self.selector.unregister(fd)
        # Who speaks has begun, even when the gate has not got round to saying so.
        self.begun = self.begun or bool(said)
        prompt = question(said) if self.on_input is not None else None
        if prompt is not None:
            self._ask(prompt)
            return
        self.reported = bool(said)
        self.finished = self.finished or self.reported

    def _ask(self, prompt: str) -> None:
        """The step asks its user; it is not listened to until it has its answer."""
        self.jail.channel.recv(MAX_REPORT)
        # What was printed before the question is shown before it. A pipe holds no more than is read at once, and who
        # goes on printing is not waited for.
        for fd, capture in self.captures.items():
            with contextlib.suppress(BlockingIOError):
                capture.feed(os.read(fd, CHUNK))
        assert self.on_input is not None
        self.asking = Asking(prompt, False, self.on_input)
        self.selector.register(self.asking, selectors.EVENT_READ, self._answered)

    def _answered(self, fd: int) -> None:
        asking, self.asking = self.asking, None
        assert asking is not None
        self.selector.unregister(fd)
        asking.close()
        # The user's time is not the program's.
        self.deadline += time.monotonic() - asking.began
        if isinstance(asking.failure, KeyboardInterrupt):
            self.stopped_by = "cancel"
            return
        if asking.failure is not None and not isinstance(asking.failure, EOFError):
            raise asking.failure
        with contextlib.suppress(OSError):  # it is gone, or does not listen: its end or the clock will say so
            self.jail.channel.send(answer(asking.text), socket.MSG_DONTWAIT)
        self.selector.register(self.jail.channel, selectors.EVENT_READ, self._reported)

    def _read_control(self, fd: int) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(self.jail.control, 65536, MAX_KEPT)
            self.kept_fds += descriptors
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.finished = self.lost = True
            return
        for message in self.jail.inbox.feed(data):
            if message["op"] == "started":
                self.begun = True
            elif message["op"] == "exit":
                self._step_ended(step_exit(message))
            elif message["op"] == "broken":
                enforcer = self.jail.walls.enforcer or "none"
                raise EnforcerFailed(enforcer, f"a wall did not stand, nothing was run: {broken(message)}")

    def _read_kept(self) -> tuple[bytes, ...]:
        fds, self.kept_fds = self.kept_fds, []
        asked = sum(len(step.keeps) for step in self.job.steps)
        kept = read_kept(fds, MAX_KEPT_BYTES)
        return kept if len(kept) == asked else ()

    def close(self) -> None:
        """Give back what the run still holds, however it ended; may be called twice."""
        self.selector.close()
        self.feeder.close()
        if self.asking is not None:
            self.asking.close()
        read_kept(self.kept_fds, 0)
        self.kept_fds = []

    def _step_ended(self, end: StepExit) -> None:
        step = self.job.steps[min(len(self.exits), len(self.job.steps) - 1)]
        self.exits.append(end)
        if step.compiles:
            self.compile_s = time.monotonic() - self.started
        self.finished = end.code != 0 or len(self.exits) >= len(self.job.steps)

    def _init_died(self, fd: int) -> None:
        self.finished = self.lost = True

    def _out_of_memory(self, fd: int) -> None:
        # The alarm rings before the kernel has chosen and counted its victim: look again at every tick.
        os.eventfd_read(fd)
        self.memory_alarm = True
        if self.jail.meter.memory_is_exceeded():
            self.stopped_by = "memory"

    def _cancelled(self, fd: int) -> None:
        self.stopped_by = "cancel"

    def _feed(self) -> None:
        """Wait for the child to take what is there, or for the source to have more."""
        feeder = self.feeder
        while feeder.hungry:
            assert feeder.source is not None
            try:
                self.selector.register(feeder.source, selectors.EVENT_READ, self._read_input)
                return
            except PermissionError:
                # Files, and /dev/null, cannot be waited for; what is in them is there.
                feeder.read_some()
        if feeder.open:
            self.selector.register(feeder.fd, selectors.EVENT_WRITE, self._write_input)

    def _read_input(self, fd: int) -> None:
        self.selector.unregister(fd)
        self.feeder.read_some()
        self._feed()

    def _write_input(self, fd: int) -> None:
        if not self.feeder.write_some() or self.feeder.hungry:
            self.selector.unregister(fd)
            self._feed()


def _emitter(on_output: OnOutput, name: str) -> Callable[[str], None]:
    return lambda text: on_output(name, text)
