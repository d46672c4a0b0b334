"""Run one cell in a worker that waits for it, and say how it ended. One selector loop on the calling thread.

The loop never waits for the worker alone: time, memory, the stop sign, the death of the worker, of the gate and of the
jail end it too. It ends with the worker alive and idle (``done``) or with the reason why the worker must be ended; the
rollback is the caller's.
"""

from __future__ import annotations

import os
import selectors
import time

from sandbox_kernel.backends.host_failures import told
from sandbox_kernel.errors import SandboxError, SessionError
from sandbox_kernel.jail.meter.meter import TICK_S, USAGE_S
from sandbox_kernel.jail.streams.stop import Stop
from sandbox_kernel.session.cell.cell_order import CellEnd, CellOrder
from sandbox_kernel.session.cell.cell_output import CellOutput
from sandbox_kernel.session.cell.cell_prompt import Asking
from sandbox_kernel.session.cell.displays import Displays
from sandbox_kernel.session.cell.listeners import ListenerFailed, guarded
from sandbox_kernel.session.worker.gate_client import GateLost
from sandbox_kernel.session.worker.messages import Began, Cleared, Done, FromWorker, Question, Run, Shown
from sandbox_kernel.session.worker.worker import LAST_WORD_S, Live


class Cell:
    """The state of one cell while it runs. ``watch`` runs it, ``settle`` collects the last output."""

    def __init__(self, live: Live, order: CellOrder, stop: Stop) -> None:
        self.live, self.order, self.stop = live, order, stop
        self.output = CellOutput(live.jail.stdout_fd, live.jail.stderr_fd, order.output_bytes, order.on_output)
        self.displays = Displays(guarded(order.on_display))
        self.how = ""
        self.done: Done | None = None
        self.problem = ""
        self.failure: BaseException | None = None
        self.disk_full = False
        self._began = False
        self._interrupt_at: float | None = None
        self._closed_at: float | None = None
        self._signalled = False
        self._question: Asking | None = None
        self._deadline = 0.0
        self._next_usage = 0.0
        self._started = 0.0
        self._full_before = False
        self._cpu_before = 0.0
        self._selector = selectors.DefaultSelector()

    def watch(self) -> CellEnd:
        """Run the cell until it ended or must be ended."""
        self._started = time.monotonic()
        self._deadline = self._started + self.order.timeout_s
        self._full_before = self.live.jail.disk().full
        self._cpu_before = self.live.jail.meter.cpu_seconds() if self.order.cpu_seconds is not None else 0.0
        try:
            self._register()
            self._send()
            while not self.how:
                try:
                    self._loop()
                except KeyboardInterrupt as error:
                    # Control-C in the caller's terminal: the cell gets it first, then the caller.
                    self.failure = ListenerFailed(error)
                    self._ask_to_stop()
        except ListenerFailed as error:
            self.how, self.failure = "failed", error
        except GateLost:
            self.how = "lost"
        except SessionError as error:
            self.how, self.problem = "protocol", str(error)
        except SandboxError as error:
            self.how, self.problem = "lost", str(error)
        except OSError as error:
            self.how, self.failure = "failed", told(error)
        finally:
            self._selector.close()
            if self._question is not None:
                self._question.close()
        return CellEnd(
            how=self.how,
            done=self.done,
            duration_s=time.monotonic() - self._started,
            interrupted=self._interrupt_at is not None,
            disk_full=self.disk_full,
            code=self.live.keeper.gone,
            problem=self.problem,
            failure=self.failure,
        )

    def settle(self) -> None:
        """Collect the last output; the first listener that failed is remembered."""
        failure = self.output.settle()
        self.failure = self.failure or failure

    def _register(self) -> None:
        watch, live = self._selector, self.live
        for fd in self.output.captures:
            watch.register(fd, selectors.EVENT_READ, self._read_output)
        watch.register(live.keeper, selectors.EVENT_READ, self._read_gate)
        watch.register(live.channel, selectors.EVENT_READ, self._read_worker)
        watch.register(live.jail.init_fd, selectors.EVENT_READ, self._jail_died)
        watch.register(self.stop, selectors.EVENT_READ, self._stopped)
        event = live.jail.meter.event_fd()
        if event is not None:
            watch.register(event, selectors.EVENT_READ, os.eventfd_read)

    def _send(self) -> None:
        for frame in self.live.take_strays():
            self.displays.show(frame)
        message: Run = {"op": "run", "id": self.live.next_id(), "code": self.order.code}
        if self.order.number is not None:
            message["number"] = self.order.number
        self.live.channel.put(message)

    def _loop(self) -> None:
        next_tick = 0.0
        while not self.how:
            now = time.monotonic()
            if now >= next_tick:
                next_tick = now + TICK_S
                self._tick()
            if self._overdue(now):
                return
            if not self.live.channel.closed:
                writes = selectors.EVENT_WRITE if self.live.channel.wants_to_write else 0
                self._selector.modify(self.live.channel, selectors.EVENT_READ | writes, self._read_worker)
            for key, events in self._selector.select(max(0.0, min(self._next_deadline(), next_tick) - now)):
                if events & selectors.EVENT_WRITE:
                    self.live.channel.write_some()
                if events & selectors.EVENT_READ and not self.how:
                    key.data(key.fd)

    def _next_deadline(self) -> float:
        found = [] if self._question is not None else [self._deadline]
        if self._interrupt_at is not None:
            found.append(self._interrupt_at + self.order.grace_s)
        return min(found, default=float("inf"))

    def _overdue(self, now: float) -> bool:
        if self._closed_at is not None and now >= self._closed_at + LAST_WORD_S:
            raise SessionError("the worker sent the end of its channel, through which nobody can speak any more")
        if self._interrupt_at is not None and now >= self._interrupt_at + self.order.grace_s:
            self.how = "interrupt"
        elif self._question is None and now >= self._deadline:
            self.how = "timeout"
        return bool(self.how)

    def _tick(self) -> None:
        self.live.jail.check_limits()
        disk = self.live.jail.disk()
        self.disk_full = self.disk_full or (disk.full and not self._full_before)
        cpu_s = self.order.cpu_seconds
        if self.live.memory_exceeded():
            self.how = "memory"
        elif cpu_s is not None and self.live.jail.meter.cpu_seconds() - self._cpu_before > cpu_s:
            self.how = "cpu"
        elif disk.over:
            self.how = "disk"
        if self.order.on_usage is not None and time.monotonic() >= self._next_usage:
            self._next_usage = time.monotonic() + USAGE_S
            self.order.on_usage(self.live.used_bytes(), self.live.limit_bytes)

    def _read_output(self, fd: int) -> None:
        if not self.output.read(fd):
            self._selector.unregister(fd)

    def _read_gate(self, fd: int) -> None:
        self.live.keeper.read()
        if self.live.keeper.gone is not None:
            # What it said before it died is still in the socket.
            while not self.how and (messages := self.live.channel.read()):
                for message in messages:
                    self._take(message)
            self.how = self.how or "died"

    def _read_worker(self, fd: int) -> None:
        for message in self.live.channel.read():
            self._take(message)
        if self.live.channel.closed:
            self._selector.unregister(fd)
            self._closed_at = time.monotonic()

    def _jail_died(self, fd: int) -> None:
        self.how = "lost"

    def _stopped(self, fd: int) -> None:
        self._selector.unregister(fd)
        self._ask_to_stop()

    def _ask_to_stop(self) -> None:
        """Interrupt the cell, as soon as it can be interrupted; the period of grace begins now."""
        if self._interrupt_at is None:
            self._interrupt_at = time.monotonic()
        if self._began and not self._signalled:
            self._signalled = True
            self.live.keeper.interrupt()

    def _take(self, message: FromWorker) -> None:
        match message:
            case Shown():
                self.output.drain()
                self.displays.show(message)
                self._seen(message.question)
            case Cleared():
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
            case Done(id=found) if found == self.live.cell_id:
                self.done, self.how = message, "done"
            case _:
                raise SessionError(f"the worker sent a {type(message).__name__.lower()} message out of turn")

    def _seen(self, question: int) -> None:
        if question:
            self.live.channel.put({"op": "seen", "question": question})

    def _ask(self, question: Question) -> None:
        if self._question is not None:
            raise SessionError("the worker asked for input twice at once")
        if self.order.on_input is None or self._interrupt_at is not None:
            self.live.channel.put({"op": "input", "question": question.question, "value": None})
            return
        self._question = Asking(question, self.order.on_input)
        self._selector.register(self._question, selectors.EVENT_READ, self._answered)

    def _answered(self, fd: int) -> None:
        asking, self._question = self._question, None
        assert asking is not None
        self._selector.unregister(asking)
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
