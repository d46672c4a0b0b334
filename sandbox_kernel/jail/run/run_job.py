"""Run one job in one jail: feed it, watch it, end it, and say what happened.

``run_job`` blocks the calling thread in one loop (``watch_loop.py``); asynchronous callers run it in a thread of their
own. It always ends the jail, so that background children end with their program, and it always returns what was
printed. It waits until the jail is gone, unless the program had reported its end before it was killed.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable

from sandbox_kernel.errors import EnforcerFailed
from sandbox_kernel.jail.core.gate_messages import send_order
from sandbox_kernel.jail.core.handed_over import receive_listener
from sandbox_kernel.jail.core.jail import Jail
from sandbox_kernel.jail.core.job import OWN_PROCESSES, Job, JobOutcome, OnListener, OnOutput, SpareGone
from sandbox_kernel.jail.kinds.reaper import bury
from sandbox_kernel.jail.meter.meter import OnUsage
from sandbox_kernel.jail.run.ending import Ending
from sandbox_kernel.jail.run.gate_replies import GateWords
from sandbox_kernel.jail.run.limit_watch import LimitWatch, RunMemory
from sandbox_kernel.jail.run.report_channel import ReportChannel
from sandbox_kernel.jail.run.watch_loop import Alarm, WatchLoop
from sandbox_kernel.jail.streams.asking import OnInput
from sandbox_kernel.jail.streams.input_prompts import InputPrompts
from sandbox_kernel.jail.streams.input_watch import InputWatch
from sandbox_kernel.jail.streams.output import CHUNK, Capture
from sandbox_kernel.jail.streams.stdin_feeder import Feeder
from sandbox_kernel.jail.streams.stop import Stop


def run_job(
    jail: Jail,
    job: Job,
    *,
    on_output: OnOutput | None = None,
    on_listener: OnListener | None = None,
    stop: Stop | None = None,
    on_usage: OnUsage | None = None,
    on_input: OnInput | None = None,
) -> JobOutcome:
    """Give a waiting jail its order and see it through; the jail is dead afterwards, its work folder still open.

    ``on_input`` is asked, on a thread of its own, what a step that reports asks of its user, or for a line that a
    program of a job that ``asks_user`` waits for; meanwhile its time stands.
    """
    run = _Run(jail, job, on_output, stop, on_usage, on_input)
    try:
        run.begin(on_listener)
        run.watch()
        return run.outcome()
    finally:
        run.close()
        box = jail.take_box()
        rest = jail.abandon() if run.reported else None
        if rest is not None:
            bury(rest)
        else:
            jail.destroy()
        jail.box_fd = box


class _Run(WatchLoop):
    """The loop of one run and what it needs to know; lives inside ``run_job``."""

    def __init__(
        self,
        jail: Jail,
        job: Job,
        on_output: OnOutput | None,
        stop: Stop | None,
        on_usage: OnUsage | None,
        on_input: OnInput | None,
    ) -> None:
        memory = RunMemory(jail.meter, job.memory_bytes)
        super().__init__(LimitWatch(jail, memory, job.cpu_seconds, on_usage))
        self.jail, self.job, self.stop = jail, job, stop
        self.captures: dict[int, Capture] = {}
        for fd, name in ((jail.stdout_fd, "stdout"), (jail.stderr_fd, "stderr")):
            os.set_blocking(fd, False)
            emit = None if on_output is None else _emitter(on_output, name)
            self.captures[fd] = Capture(job.output_bytes, emit)
        asks = job.asks_user and on_input is not None and job.stdin is None and job.stdin_from is None
        self.feeder = Feeder(jail.stdin_fd, job.stdin, job.stdin_from, held=asks)
        jail.stdin_fd = -1
        self.questions = (
            InputPrompts(self.selector, on_input, self._drain, self._interrupted) if on_input is not None else None
        )
        self.input = InputWatch(self.feeder, self.selector, self.questions) if asks and self.questions else None
        self.gate = GateWords(jail, job.steps)
        self.channel = ReportChannel(jail.channel, self.selector, self.questions)
        #: The program said how it ended, and nobody has stopped it.
        self.reported = False
        self.started_at = 0.0
        self.ended_at = 0.0

    def begin(self, on_listener: OnListener | None) -> None:
        """Send the order; the clock runs from here."""
        jail, job = self.jail, self.job
        self.captures[jail.stderr_fd].feed(job.preamble)
        jail.meter.arm(job.memory_bytes, job.processes + OWN_PROCESSES)
        self.started_at = time.monotonic()
        jail.control.settimeout(job.timeout_s)
        try:
            self._send(listener=on_listener is not None)
            if on_listener is not None:
                on_listener(receive_listener(jail.control))
        except TimeoutError:
            self.end(Ending.TIMEOUT)
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
        """Until the last step ended, something stopped it, or the jail is gone."""
        self._register()
        self.loop()
        self.ended_at = time.monotonic()
        self.reported = self.channel.reported and self.ending is None

    def over(self) -> bool:
        """See ``WatchLoop``."""
        return self.gate.finished or self.channel.reported

    def alarms(self) -> Iterable[Alarm]:
        """The end of the program's time. The user's time is not the program's: it stands while a question is open."""
        if self.questions is None:
            yield Alarm(self.started_at + self.job.timeout_s, self._timed_out)
        elif not self.questions.open:
            yield Alarm(self.started_at + self.job.timeout_s + self.questions.asked_s, self._timed_out)

    def at_tick(self) -> None:
        """See ``WatchLoop``."""
        if self.input is not None:
            self.input.look(self.jail.init_pid)

    def _timed_out(self) -> None:
        self.end(Ending.TIMEOUT)

    def _register(self) -> None:
        jail = self.jail
        for fd in self.captures:
            self.when_readable(fd, self._read_output)
        self.when_readable(jail.control, self.gate.read)
        self.when_readable(jail.init_fd, self.gate.died)
        self.watch_memory()
        if self.stop is not None:
            self.when_readable(self.stop, self._cancelled)
        self.feeder.attend(self.selector)
        if self.job.ends_with_report:
            self.channel.listen()

    def outcome(self) -> JobOutcome:
        """Kill what is left, drain what was printed, and read the meters."""
        jail, gate = self.jail, self.gate
        self.selector.close()
        self.feeder.close()
        self.limits.look_at_disk(last=True)
        jail.meter.last_look()
        if gate.lost and not (gate.begun or self.channel.spoke or self.ending):
            gate.read(jail.control.fileno())
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
        # A program that printed has begun, although the gate was killed before it could say so.
        begun = gate.begun or self.channel.spoke or gate.exits or stdout.total
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
            metered_by=jail.meter.mechanism,
            report=self.channel.report() if any(step.reports for step in self.job.steps) else b"",
            kept=gate.kept(),
        )

    def close(self) -> None:
        """Give back what the run still holds, however it ended; may be called twice."""
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
        """What was printed before a question is shown before it.

        A pipe holds no more than is read at once, and who goes on printing is not waited for.
        """
        for fd, capture in self.captures.items():
            with contextlib.suppress(BlockingIOError):
                capture.feed(os.read(fd, CHUNK))

    def _cancelled(self, fd: int) -> None:
        self.end(Ending.CANCEL)

    def _interrupted(self) -> None:
        self.end(Ending.CANCEL)


def _emitter(on_output: OnOutput, name: str) -> Callable[[str], None]:
    return lambda text: on_output(name, text)
