"""Run one cell in a worker that waits for it, and return how it ended. One loop on the calling thread
(``jail/watch_loop.py``).

The loop never waits for the worker alone: every limit, the stop sign, the death of the worker, of the gate and of the
jail end it too. It ends with the worker alive and idle (``done``) or with the reason why the worker must be ended; the
rollback is the caller's.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Iterable

from sandbox_kernel.backends.checks import told
from sandbox_kernel.errors import SandboxError, SessionError
from sandbox_kernel.jail.ending import Ending
from sandbox_kernel.jail.streams import Stop
from sandbox_kernel.jail.watch_loop import Alarm, LimitWatch, WatchLoop
from sandbox_kernel.model import Call
from sandbox_kernel.session.cell.cell_order import CellEnd, CellOrder
from sandbox_kernel.session.cell.cell_output import CellOutput
from sandbox_kernel.session.cell.cell_prompt import CellPrompt
from sandbox_kernel.session.cell.displays import Displays
from sandbox_kernel.session.cell.front_end import front_end_reply
from sandbox_kernel.session.cell.listeners import ListenerFailed, guarded
from sandbox_kernel.session.worker.gate_client import GateLost
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
from sandbox_kernel.session.worker.worker import LAST_WORD_S, JailedWorker

#: A cell that sleeps on is interrupted a second time after this time.
_AGAIN_S = 1.0
#: The pause before each read of a worker that has had its part of the host's work.
_SLOWLY_S = 0.05


class Cell(WatchLoop):
    """The state of one cell while it runs. ``watch`` runs it, ``settle`` collects the last output."""

    def __init__(self, live: JailedWorker, order: CellOrder, stop: Stop) -> None:
        super().__init__(LimitWatch(live.jail, live, order.cpu_seconds, order.request.on_usage, order.gpu_memory_mb))
        self.live, self.order, self.stop = live, order, stop
        asked = order.request
        self.output = CellOutput(live.jail.stdout_fd, live.jail.stderr_fd, order.output_bytes, asked.on_output)
        self.displays = Displays(guarded(asked.on_display), live.worker_id, self._is_over)
        self.done: CellDone | None = None
        self.problem = ""
        self.failure: BaseException | None = None
        self._began = False
        self._interrupt_at: float | None = None
        self._closed_at: float | None = None
        self._signalled = False
        self._again_at: float | None = None
        self._question: CellPrompt | None = None
        self._deadline = 0.0
        self._started = 0.0
        self._writes = False
        #: Whether the worker had no main thread at the last tick.
        self._headless = False

    def watch(self) -> CellEnd:
        """Run the cell until it ended or must be ended."""
        self._started = time.monotonic()
        self._deadline = self._started + self.order.timeout_s
        self.live.pause.begin_cell()
        calls = self.live.calls
        made: tuple[Call, ...] = ()
        try:
            if calls is not None:
                calls.begin(self.order.request.loop)
            self.limits.begin()
            self._register()
            self._send()
            while not self.has_ended():
                try:
                    self.loop()
                except KeyboardInterrupt as error:
                    # Control-C in the caller's terminal: the cell gets it first, then the caller.
                    self.failure = ListenerFailed(error)
                    self._ask_to_stop()
            self._look_again()
        except ListenerFailed as error:
            self.ending, self.failure = Ending.HOST_FAILED, error
        except GateLost:
            self.ending = Ending.LOST
        except SessionError as error:
            self.ending, self.problem = Ending.PROTOCOL, str(error)
        except SandboxError as error:
            self.ending, self.problem = Ending.LOST, str(error)
        except OSError as error:
            self.ending, self.failure = Ending.HOST_FAILED, told(error)
        finally:
            self.selector.close()
            if self._question is not None:
                self._question.close()
            if calls is not None:
                made = calls.finish()
        assert self.ending is not None
        return CellEnd(
            how=self.ending,
            done=self.done,
            duration_s=time.monotonic() - self._started,
            interrupted=self._interrupt_at is not None,
            disk_full=self.limits.disk_full,
            code=self.live.gate.gone,
            problem=self.problem,
            told_of_gpu=self.live.told_of_gpu(self.done),
            failure=self.failure,
            calls=made,
        )

    def settle(self) -> None:
        """Collect the last output; the first listener that failed is remembered."""
        failure = self.output.settle()
        self.failure = self.failure or failure

    def _register(self) -> None:
        live = self.live
        for fd in self.output.captures:
            self.when_readable(fd, self._read_output)
        self.when_readable(live.gate, self._read_gate)
        self.when_readable(live.channel, self._talk_to_worker)
        self.when_readable(live.jail.init_fd, self._jail_died)
        self.when_readable(self.stop, self._stopped)
        self.watch_memory()

    def _send(self) -> None:
        for frame in self.live.take_strays():
            self.displays.show(frame)
        message: Run = {"op": "run", "id": self.live.next_id(), "code": self.order.request.code}
        if self.order.request.number is not None:
            message["number"] = self.order.request.number
        if self.order.request.comm is not None:
            message["comm"] = self.order.request.comm
        if (front_end := self.order.request.front_end) is not None:
            message["expressions"] = dict(front_end.expressions)
            if front_end.late is not None:
                self.live.late.follow(message["id"], front_end.late)
        self.live.channel.put(message)

    def _look_again(self) -> None:
        """A cell that went beyond a limit and ended between two ticks: the next cell must not be ended for it."""
        if self.ending is Ending.DONE and (exceeded := self.limits.look()) is not None:
            self.ending, self.done = exceeded, None

    def at_tick(self) -> None:
        """See ``WatchLoop``: a worker without its main thread ends no cell, and the kernel does not find it for memory.

        One that is just being ended may look like that for a moment, so it is looked at twice.
        """
        headless = self.live.channel.speaker_goes_on_headless
        if headless and self._headless and not self.has_ended():
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
            yield Alarm(self._interrupt_at + self.order.grace_s, lambda: self.end(Ending.INTERRUPT))
        if self._again_at is not None:
            yield Alarm(self._again_at, self._interrupt_again)
        if self._question is None:
            yield Alarm(self._deadline + self.live.pause.seconds(), lambda: self.end(Ending.TIMEOUT))

    def _is_over(self) -> bool:
        return self._question is None and time.monotonic() >= self._deadline + self.live.pause.seconds()

    def _channel_is_closed(self) -> None:
        raise SessionError("the worker sent the end of its channel, through which nobody can speak any more")

    def _read_output(self, fd: int) -> None:
        if not self.output.read(fd):
            self.selector.unregister(fd)

    def _read_gate(self, fd: int) -> None:
        self.live.gate.read()
        if self.live.gate.gone is not None:
            # What it said before it died is still in the socket.
            while not self.has_ended() and (messages := self.live.channel.read()):
                for message in messages:
                    self._take(message)
            self.end(Ending.DIED)

    def _talk_to_worker(self, fd: int) -> None:
        self.live.channel.write_some()
        if self.displays.work.is_used_up:
            time.sleep(_SLOWLY_S)  # a worker that goes on all the same waits
        for message in self.live.channel.read():
            self._take(message)
        if self.live.channel.closed:
            self.selector.unregister(fd)
            self._closed_at = time.monotonic()

    def _jail_died(self, fd: int) -> None:
        self.end(Ending.LOST)

    def _stopped(self, fd: int) -> None:
        self.selector.unregister(fd)
        self._ask_to_stop()

    def _ask_to_stop(self) -> None:
        """Interrupt the cell, as soon as it can be interrupted; the period of grace begins now."""
        if self._interrupt_at is None:
            self._interrupt_at = time.monotonic()
        if self._began and not self._signalled:
            self._signalled = True
            self._again_at = time.monotonic() + min(_AGAIN_S, self.order.grace_s / 2)
            self.live.gate.interrupt()

    def _interrupt_again(self) -> None:
        """Interrupt the cell a second time: the first interrupt may have been lost (``CheckpointGate.interrupt``)."""
        self._again_at = None
        self.live.gate.interrupt(again=True)

    def _take(self, message: FromWorker) -> None:
        match message:
            case LateText(id=found) if found == self.live.cell_id:
                self.output.drain()
                self.output.add(message.name, message.text)
            case LateText():
                self.live.late.text(message)
            case DisplayShown(id=found) if found != self.live.cell_id and self.live.late.knows(found):
                self.live.late.display(message)
                self._seen(message.question)
            case DisplayShown():
                self.output.drain()
                self.displays.show(message)
                self._seen(message.question)
            case OutputCleared():
                self.output.drain()
                self.displays.clear(message)
                self._seen(message.question)
            case Began(id=found) if found == self.live.cell_id:
                self._began = True
                if self._interrupt_at is not None:
                    self._ask_to_stop()
            case Question(id=found) if found == self.live.cell_id:
                self.output.drain()
                self._ask(message)
            case CellDone(id=found) if found == self.live.cell_id:
                self.done, self.ending = message, Ending.DONE
                if (front_end := self.order.request.front_end) is not None:
                    front_end.on_reply(front_end_reply(front_end, message.reply))
            case _:
                raise SessionError(f"the worker sent a {type(message).__name__.lower()} message out of turn")

    def _seen(self, question: int) -> None:
        if question:
            self.live.channel.put({"op": "seen", "question": question})

    def _ask(self, question: Question) -> None:
        on_input = self.order.request.on_input
        if on_input is None or self._interrupt_at is not None:
            # After an interrupt a debugger asks again, while the first question is still open on the page.
            self.live.channel.put({"op": "input", "question": question.question, "value": None})
            return
        if self._question is not None:
            raise SessionError("the worker asked for input twice at once")
        self._question = CellPrompt(question, on_input)
        self.selector.register(self._question, selectors.EVENT_READ, self._answered)

    def _answered(self, fd: int) -> None:
        asking, self._question = self._question, None
        assert asking is not None
        self.selector.unregister(asking)
        asking.close()
        # The user's time is not the cell's.
        self._deadline += time.monotonic() - asking.began
        if isinstance(asking.failure, KeyboardInterrupt):
            # No answer: the interrupt is what the question is to meet.
            self._ask_to_stop()
            return
        if asking.failure is not None and not isinstance(asking.failure, EOFError):
            raise ListenerFailed(asking.failure)
        self.live.channel.put({"op": "input", "question": asking.number, "value": asking.text})
