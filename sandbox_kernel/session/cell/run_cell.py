"""Run one cell in a worker that waits for it, and return how it ended. One loop (``jail/watch_loop.py``).

The loop never waits for the worker alone: every limit, the stop sign, the death of the worker, of the gate and of the
jail end it too. It ends with the worker alive and idle (``done``) or with the reason why the worker must be ended; the
rollback is the caller's.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import math
import os
import selectors
import termios
import time
from collections.abc import Iterable
from functools import partial

from sandbox_kernel.backends.checks import host_failure
from sandbox_kernel.errors import SandboxError, SessionError
from sandbox_kernel.jail.accounting.processes import goes_on_without_main_thread
from sandbox_kernel.jail.ending import Ending
from sandbox_kernel.jail.input_prompts import InputPrompts
from sandbox_kernel.jail.streams import CHUNK, Capture, ListenerFailed, Stop, guarded
from sandbox_kernel.jail.watch_loop import TICK_S, Alarm, LimitWatch, WatchLoop
from sandbox_kernel.limits import MIB
from sandbox_kernel.model import Call
from sandbox_kernel.session.cell.displays import Displays
from sandbox_kernel.session.cell.front_end import front_end_reply
from sandbox_kernel.session.cell.request import CellEvents, CellRequest
from sandbox_kernel.session.cell.result import CellEnd
from sandbox_kernel.session.worker.gate_client import GateLost
from sandbox_kernel.session.worker.jailed_worker import LAST_WORD_S, JailedWorker
from sandbox_kernel.session.worker.messages import (
    Began,
    CellDone,
    DisplayShown,
    FromWorker,
    LateText,
    OutputCleared,
    Question,
    Run,
)

#: A cell that sleeps on is interrupted a second time after this time.
_AGAIN_S = 1.0
#: The pause before each read of a worker that has had its part of the host's work.
_SLOWLY_S = 0.05


class Cell(WatchLoop):
    """The state of a cell while it runs; the state after it becomes ``node``. ``watch`` runs it, then ``settle``."""

    def __init__(
        self, live: JailedWorker, request: CellRequest, events: CellEvents, stop: Stop, grace_s: float, node: int
    ) -> None:
        limits, jail = request.limits, live.jail
        super().__init__(LimitWatch(jail, live.memory, limits.cpu_seconds, events.on_usage, limits.gpu_memory_mb))
        self.live, self.request, self.events, self.stop = live, request, events, stop
        self.grace_s, self._node = grace_s, node
        #: What the cell prints, by the pipes of the session, which outlive it.
        self.captures: dict[int, Capture] = {}
        on_output, on_input = guarded(events.on_output), events.on_input
        for fd, name in ((jail.stdout_fd, "stdout"), (jail.stderr_fd, "stderr")):
            self.captures[fd] = Capture(limits.output_bytes, None if on_output is None else partial(on_output, name))
        self.stdout, self.stderr = self.captures.values()
        self.displays = Displays(guarded(events.on_display), live.worker_id, self._is_over)
        self.done: CellDone | None = None
        self.problem = ""
        self.failure: BaseException | None = None
        self._began = False
        self._interrupt_at: float | None = None
        self._closed_at: float | None = None
        self._signalled = False
        self._again_at: float | None = None
        self._prompts: InputPrompts | None = None
        if on_input is not None:
            self._prompts = InputPrompts(self.selector, on_input, self._drain, self._ask_to_stop)
        self._deadline = 0.0
        self._writes = False
        #: Whether the worker had no main thread at the last tick.
        self._headless = False

    def watch(self) -> CellEnd:
        """Run the cell until it ended or must be ended. Raises ``OSError`` when it was not run."""
        try:
            return self._watch()
        finally:
            self.selector.close()
            if self._prompts is not None:
                self._prompts.close()

    def _watch(self) -> CellEnd:
        meter = self.live.jail.meter
        meter.reset_peak()
        self.live.memory.begin_cell()
        # Processes of earlier cells may hold every place already; that is not this cell's doing.
        meter.recount()
        before = meter.read()
        started = time.monotonic()
        self._deadline = started + self.request.timeout
        self.live.pause.begin_cell()
        calls = self.live.calls
        made: tuple[Call, ...] = ()
        try:
            if calls is not None:
                calls.begin(self.events.loop)
            self.limits.begin()
            for fd in self.captures:
                self.when_readable(fd, self._read_output)
            self.when_readable(self.live.gate, self._read_gate)
            self.when_readable(self.live.channel, self._talk_to_worker)
            self.when_readable(self.live.jail.init_fd, lambda _fd: self.end(Ending.LOST))
            self.when_readable(self.stop, self._stopped)
            self._send()
            while self.ending is None:
                try:
                    # No check at once, while a short cell ends: there is one at its end.
                    self.loop(TICK_S)
                except KeyboardInterrupt as error:
                    # Control-C in the caller's terminal: the cell gets it first, then the caller.
                    self.failure = ListenerFailed(error)
                    self._ask_to_stop()
            self.live.memory.ended = self.ending is Ending.DONE
            # It may have gone beyond a limit and ended between two ticks: the next cell must not be ended for it.
            if self.ending is Ending.DONE and (exceeded := self.limits.check()) is not None:
                self.ending, self.done = exceeded, None
        except ListenerFailed as error:
            self.ending, self.failure = Ending.HOST_FAILED, error
        except GateLost:
            self.ending = Ending.LOST
        except SessionError as error:
            self.ending, self.problem = Ending.PROTOCOL, str(error)
        except SandboxError as error:
            self.ending, self.problem = Ending.LOST, str(error)
        except OSError as error:
            self.ending, self.failure = Ending.HOST_FAILED, host_failure(error)
        finally:
            if calls is not None:
                made = calls.finish()
        assert self.ending is not None
        duration_s = time.monotonic() - started
        ended_well = self.done is not None and self.done.status == "ok"
        others = 0 if ended_well else len(meter.members() or ()) - self.live.tree.living_count
        # Count processes before the checkpoint adds one: a cell shorter than a tick was not counted yet.
        try:
            meter.recount()
            after = meter.read()
        except OSError as error:
            after = before
            if self.ending is not Ending.LOST:
                self.ending, self.failure = Ending.HOST_FAILED, self.failure or host_failure(error)
        return CellEnd(
            how=self.ending,
            done=self.done,
            duration_s=duration_s,
            interrupted=self._interrupt_at is not None,
            disk_full=self.limits.disk_full,
            code=self.live.gate.gone,
            problem=self.problem,
            calls=made,
            oom_kills=after.oom_kills - before.oom_kills,
            forks_refused=after.forks_refused and not before.forks_refused,
            crowded=others > self.request.limits.processes // 2,
            cpu_seconds=None if after.cpu_seconds is None else max(0.0, after.cpu_seconds - (before.cpu_seconds or 0)),
            peak_bytes=after.peak_bytes,
            memory=self.live.memory.use,
            gpu_peak_bytes=self.limits.gpu_peak_bytes(),
        )

    def settle(self) -> None:
        """Take the last output out of the session's pipes; the first listener that failed is remembered."""
        try:
            self._drain()
            for capture in self.captures.values():
                capture.finish()
        except ListenerFailed as error:
            self.failure = self.failure or error

    def _drain(self) -> None:
        """Take what is in the pipes now, and no more: others may go on writing."""
        for fd, capture in self.captures.items():
            with contextlib.suppress(OSError):
                count = array.array("i", [0])
                fcntl.ioctl(fd, termios.FIONREAD, count)
                left = count[0]
                while left > 0 and (data := os.read(fd, min(left, CHUNK))):
                    left -= len(data)
                    capture.feed(data)

    def _send(self) -> None:
        live = self.live
        live.cell_id += 1
        message: Run = {"op": "run", "id": live.cell_id, "code": str(self.request.code)}
        if self.request.number is not None:
            message["number"] = self.request.number
        if (order := live.checkpoint_after(self._node)) is not None:
            message["checkpoint"] = order
        if self.request.comm is not None:
            message["comm"] = self.request.comm
        if (front_end := self.events.front_end) is not None:
            message["expressions"] = dict(front_end.expressions)
            if front_end.late is not None:
                live.background.follow(message["id"], front_end.late)
        live.channel.put(message)

    def at_tick(self) -> None:
        """See ``WatchLoop``. Applies a lifted memory limit, and ends a worker that has lost its main thread.

        Such a worker ends no cell, and the kernel does not find it for memory. One that is just being ended may look
        like that for a moment, so it is looked at twice.
        """
        lift = self.events.lift
        if lift is not None and lift.memory_mb * MIB > self.live.memory.limit_bytes:
            self.live.limit_memory(lift.memory_mb * MIB)
        speaker = self.live.channel.speaker
        headless = speaker > 0 and goes_on_without_main_thread(speaker)
        if headless and self._headless and self.ending is None:
            raise SessionError("the cell ended the main thread of its process, in which cells run, and went on without")
        self._headless = headless

    def before_wait(self) -> None:
        """See ``WatchLoop``: wait for room in the channel while something is to be sent."""
        channel = self.live.channel
        if not channel.closed and channel.wants_to_write != self._writes:
            self._writes = channel.wants_to_write
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._writes else 0)
            self.selector.modify(channel, events, self._talk_to_worker)

    def alarms(self) -> Iterable[Alarm]:
        """See ``WatchLoop``. The user's time is not the cell's: the clock stands at a question and at a breakpoint."""
        if self._closed_at is not None:
            yield Alarm(self._closed_at + LAST_WORD_S, self._channel_is_closed)
        if self._interrupt_at is not None:
            yield Alarm(self._interrupt_at + self.grace_s, lambda: self.end(Ending.INTERRUPT))
        if self._again_at is not None:
            # The first interrupt may have been lost (``CheckpointGate.interrupt``).
            yield Alarm(self._again_at, self._interrupt_again)
        yield Alarm(self._time_is_up_at(), lambda: self.end(Ending.TIMEOUT))

    def _time_is_up_at(self) -> float:
        asked_s = 0.0 if self._prompts is None else math.inf if self._prompts.open else self._prompts.asked_s
        lift = self.events.lift
        lifted_s = 0.0 if lift is None else lift.timeout_s - self.request.timeout
        return self._deadline + lifted_s + self.live.pause.seconds() + asked_s

    def _is_over(self) -> bool:
        return time.monotonic() >= self._time_is_up_at()

    def _channel_is_closed(self) -> None:
        raise SessionError("the worker sent the end of its channel, through which nobody can speak any more")

    def _read_output(self, fd: int) -> None:
        with contextlib.suppress(BlockingIOError):
            data = os.read(fd, CHUNK)
            self.captures[fd].feed(data)
            if not data:
                self.selector.unregister(fd)

    def _read_gate(self, fd: int) -> None:
        self.live.gate.read()
        if self.live.gate.gone is not None:
            # What it said before it died is still in the socket.
            while self.ending is None and (messages := self.live.channel.read()):
                self._take_all(messages)
            self.end(Ending.DIED)

    def _talk_to_worker(self, fd: int) -> None:
        self.live.channel.write_some()
        if self.displays.work.is_used_up:
            time.sleep(_SLOWLY_S)  # a worker that goes on all the same waits
        self._take_all(self.live.channel.read())
        if self.live.channel.closed:
            self.selector.unregister(fd)
            self._closed_at = time.monotonic()

    def _stopped(self, fd: int) -> None:
        self.selector.unregister(fd)
        self._ask_to_stop()

    def _ask_to_stop(self) -> None:
        """Interrupt the cell, as soon as it can be interrupted; the period of grace begins now."""
        if self._interrupt_at is None:
            self._interrupt_at = time.monotonic()
        if self._began and not self._signalled:
            self._signalled = True
            self._again_at = time.monotonic() + min(_AGAIN_S, self.grace_s / 2)
            self.live.gate.interrupt()

    def _interrupt_again(self) -> None:
        self._again_at = None
        self.live.gate.interrupt(again=True)

    def _take_all(self, messages: list[FromWorker]) -> None:
        """Take these messages up to the end of the cell; the report of its checkpoint may follow."""
        for position, message in enumerate(messages, 1):
            self._take(message)
            if self.ending is not None:
                self.live.channel.put_back(messages[position:])
                return

    def _take(self, message: FromWorker) -> None:
        match message:
            case LateText(id=found) if found == self.live.cell_id:
                self._drain()
                capture = self.stdout if message.name == "stdout" else self.stderr
                capture.feed(message.text.encode("utf-8", "replace"))
            case LateText():
                self.live.background.take(message)
            case DisplayShown(id=found) if found != self.live.cell_id and self.live.background.knows(found):
                self.live.background.take(message)
                self._seen(message.question)
            case DisplayShown():
                self._drain()
                self.displays.show(message)
                self._seen(message.question)
            case OutputCleared():
                self._drain()
                self.displays.clear(message)
                self._seen(message.question)
            case Began(id=found) if found == self.live.cell_id:
                self._began = True
                if self._interrupt_at is not None:
                    self._ask_to_stop()
            case Question(id=found) if found == self.live.cell_id:
                self._ask(message)
            case CellDone(id=found) if found == self.live.cell_id:
                self.done, self.ending = message, Ending.DONE
                if (front_end := self.events.front_end) is not None:
                    front_end.on_reply(front_end_reply(front_end, message.reply, self.displays.work))
            case _:
                raise SessionError(f"the worker sent a {type(message).__name__.lower()} message out of turn")

    def _seen(self, question: int) -> None:
        if question:
            self.live.channel.put({"op": "seen", "question": question})

    def _ask(self, question: Question) -> None:
        def answer(text: str | None) -> None:
            self.live.channel.put({"op": "input", "question": question.question, "value": text})

        if self._prompts is None or self._interrupt_at is not None:
            # After an interrupt a debugger asks again, while the first question is still open on the page.
            answer(None)
        elif self._prompts.open is not None:
            raise SessionError("the worker asked for input twice at once")
        else:
            self._prompts.ask(question.prompt, answer, password=question.password)
