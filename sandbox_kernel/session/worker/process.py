"""The process of a worker in its jail: started, asked, interrupted, ended. ``worker.py`` adds its checkpoints."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from sandbox_kernel.backends.functions.call_server import CallServer
from sandbox_kernel.errors import SessionError
from sandbox_kernel.jail.gate_messages import JobFile, Step
from sandbox_kernel.jail.jail import Jail
from sandbox_kernel.jail.streams import Stop, readable
from sandbox_kernel.session.cell.displays import BackgroundOutput
from sandbox_kernel.session.debug_link import DebugLink, OnEvent, PauseClock
from sandbox_kernel.session.worker.channel import WorkerChannel
from sandbox_kernel.session.worker.fork_authorization import ForkAuthorizer, receive_authorizer
from sandbox_kernel.session.worker.gate_client import GateClient
from sandbox_kernel.session.worker.messages import (
    Answer,
    Ask,
    DisplayShown,
    FromWorker,
    LateText,
    OutputCleared,
    Ready,
    What,
)

if TYPE_CHECKING:
    from sandbox_kernel.net.proxy.egress_proxy import EgressProxy

#: How long a worker may take to start, to freeze or to wake on a machine under load.
PATIENCE_S = 30.0
#: How long to wait, after the channel was closed, for the gate's report of how the worker ended.
LAST_WORD_S = 0.5
#: How often a worker that answers a question is interrupted again.
INTERRUPT_EVERY_S = 0.5
#: How often a pipe is read to empty it; a process that goes on writing must not keep the host busy.
_PIPE_READS = 32

Kind = TypeVar("Kind", bound=FromWorker)


class WorkerProcess:
    """A jail with a program that runs cells. One thread at a time uses it."""

    def __init__(self, jail: Jail, proxy: EgressProxy | None = None, calls: CallServer | None = None) -> None:
        self.jail = jail
        self.proxy = proxy
        #: Where programs find a proxy that was started later; empty without one.
        self.proxy_url = ""
        self.calls = calls
        #: A random name of this worker, part of its display ids on the page; the guest never gets it.
        self.worker_id = secrets.token_hex(8)
        self.gate = GateClient(jail)
        self.channel = WorkerChannel(jail.channel)
        self.background = BackgroundOutput(self.worker_id)
        #: The number of the last cell or question.
        self.cell_id = 0
        #: How many variables the user has, as far as that was told.
        self.names = 0
        #: Decides the forks of a session whose policy denies starting processes; None where forks are free.
        self._forks: ForkAuthorizer | None = None
        self._asks_to_fork = False
        #: How long the cell has stood at breakpoints, and the debugger that stopped it there.
        self.pause = PauseClock()
        self._debugger: DebugLink | None = None

    def order_start(self, step: Step, files: Sequence[JobFile] = (), descriptors: Sequence[int] = ()) -> None:
        """Order the gate to start the program; ``await_start`` waits for it."""
        for fd in (self.jail.stdout_fd, self.jail.stderr_fd):
            os.set_blocking(fd, False)
        hatch = None
        if self.calls is not None:
            step, hatch = replace(step, functions=self.calls.functions.listing()), self.calls.hatch
        self._asks_to_fork = step.asks_to_fork
        self.gate.start(step, files, self.proxy.start if self.proxy is not None else None, descriptors, hatch)

    def await_start(self) -> None:
        """Wait until the program has started and is ready for a cell."""
        self.gate.await_start()
        if self._asks_to_fork:
            self._forks = receive_authorizer(self.jail.channel, PATIENCE_S)
        self.channel.listen_to(self.gate.worker)
        self.names = self._await(Ready).names

    @property
    def forks_freely(self) -> bool:
        """Whether the worker may fork at any time; otherwise each fork waits for the host's ``allow_fork``."""
        return self._forks is None

    def allow_fork(self, *processes: int) -> None:
        """Let each of these processes, by its pid inside, fork once; without any, the worker."""
        if self._forks is not None:
            for pid in processes or (self.gate.worker,):
                self._forks.allow(pid)

    def withdraw_fork(self) -> None:
        """Take back what ``allow_fork`` allowed the worker, if it was not used."""
        if self._forks is not None:
            self._forks.withdraw(self.gate.worker)

    def next_id(self) -> int:
        """Return a new number for the next cell or question."""
        self.cell_id += 1
        return self.cell_id

    def ask(
        self,
        what: What,
        code: str,
        pos: int,
        timeout_s: float,
        descriptor: int | None = None,
        stop: Stop | None = None,
    ) -> Answer:
        """Ask the worker a question about code; raises ``SessionError`` when it does not answer in time.

        The worker gets a copy of ``descriptor``, if one is given. When ``stop`` is raised it is interrupted, and its
        answer awaited all the same.
        """
        number = self.next_id()
        message: Ask = {"op": "ask", "id": number, "what": what, "code": code, "pos": pos}
        if descriptor is None:
            self.channel.put(message)
        else:
            self.channel.give(message, descriptor)
        try:
            answer = self._await(Answer, timeout_s, stop)
        except KeyboardInterrupt:
            # The caller does not wait any more. An answer that comes later would be read in place of another message.
            self.channel.interrupt_speaker()
            with contextlib.suppress(SessionError):
                self._await(Answer)
            raise
        if answer.id != number:
            raise SessionError("the worker answered another question")
        return answer

    def attach_debugger(self, on_event: OnEvent) -> DebugLink:
        """Start the debugger in the worker; raises ``SessionError`` when it cannot be started."""
        self.end_debugger()
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                answer = self.ask("debug", "", 0, PATIENCE_S, theirs.fileno()).answer
            if answer.get("ok") is not True:
                reason = answer.get("reason", "the session refused")
                raise SessionError(f"the debugger cannot be started: {reason!s:.300}")
        except SessionError:
            ours.close()
            raise
        self._debugger = DebugLink(ours, self.pause, on_event)
        return self._debugger

    def end_debugger(self) -> None:
        """Close the debugger, if there is one: the worker that it stopped is about to end."""
        if self._debugger is not None:
            self._debugger.close()
            self._debugger = None

    def hear(self) -> None:
        """Hand on the output that threads and tasks have sent between cells; called with the turn."""
        for message in self.channel.hear():
            self.background.take(message)

    def end_worker(self) -> None:
        """Kill the worker if it is alive; the promotion that follows ends the processes that it started."""
        if self.gate.gone is None and not self.channel.kill_speaker():
            self.gate.kill_worker()
        self.jail.meter.release()

    def drop_output(self) -> None:
        """Forget what a worker that ended between cells has left in its pipes: the next cell did not print it."""
        for fd in (self.jail.stdout_fd, self.jail.stderr_fd):
            with contextlib.suppress(OSError):
                for _ in range(_PIPE_READS):
                    if not os.read(fd, 1 << 16):
                        break

    def destroy(self) -> None:
        """End the jail with everything in it, and the proxy."""
        self.channel.forget_speaker()
        self.end_debugger()
        self.jail.destroy()
        if self.proxy is not None:
            self.proxy.close()
        if self.calls is not None:
            self.calls.close()

    def _take(self, message: FromWorker) -> None:
        """Take a message that came while another one was awaited; raises ``SessionError`` for one out of turn."""
        if isinstance(message, LateText | DisplayShown):
            self.background.take(message)
        elif not isinstance(message, OutputCleared):
            raise SessionError(f"the worker sent a {type(message).__name__.lower()} message out of turn")

    def _await(self, kind: type[Kind], timeout_s: float | None = None, stop: Stop | None = None) -> Kind:
        """Wait for a message of a kind; raises ``SessionError`` when the worker dies, is late or sends another kind.

        While ``stop`` is raised the worker is interrupted again and again: it ignores what came before our question.
        """
        next_interrupt = 0.0
        timeout_s = PATIENCE_S if timeout_s is None else timeout_s
        deadline = time.monotonic() + timeout_s
        while True:
            messages = self.channel.read()
            for position, message in enumerate(messages, 1):
                if isinstance(message, kind):
                    self.channel.put_back(messages[position:])
                    return message
                self._take(message)
            if self.channel.closed:
                # The gate may report how the worker ended.
                if readable(self.jail.control.fileno(), LAST_WORD_S):
                    self.gate.read()
                raise SessionError("the worker is gone")
            self.channel.write_some()
            if stop is not None and stop.raised and time.monotonic() >= next_interrupt:
                next_interrupt = time.monotonic() + INTERRUPT_EVERY_S
                self.channel.interrupt_speaker()
            left = deadline - time.monotonic()
            if left <= 0:
                raise SessionError(f"the worker did not answer within {timeout_s:g} s")
            if not readable(self.channel.fileno(), min(left, 0.05)):
                self.gate.read()
                if self.gate.gone is not None and not readable(self.channel.fileno(), 0):
                    raise SessionError("the worker is gone")
