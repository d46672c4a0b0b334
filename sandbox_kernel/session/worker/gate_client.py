"""The host's side of a session's gate: sends orders, reads answers and reports.

The gate (``guest/session/checkpoint_gate.py``) answers an order with a message of the same name. Unasked it sends
``gone`` (the worker has ended) and ``lost`` (checkpoints have ended). A checkpoint is named by its cell.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, TypeVar

import msgspec

from sandbox_kernel.errors import EnforcerFailed, SessionError
from sandbox_kernel.jail.gate_messages import JobFile, Step, frame, receive_listener, send_order
from sandbox_kernel.jail.jail import Jail
from sandbox_kernel.jail.run_job import OnListener
from sandbox_kernel.jail.streams import readable
from sandbox_kernel.util.wire import BadMessage, check

#: How long the gate may take for an order: it waits for killed processes and writes files, never for a cell.
PATIENCE_S = 20.0
#: The most answers that may wait to be read by their callers.
_MOST_ANSWERS = 1000
_TICKS = os.sysconf("SC_CLK_TCK")
_Pid = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]
_T = TypeVar("_T")


class _Said(msgspec.Struct):
    """What the gate says with a message; each kind has some of these."""

    message: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    cells: tuple[int, ...] = ()
    ok: bool = False
    pid: _Pid = 0


class _Started(msgspec.Struct):
    pid: _Pid


class _Gone(_Started):
    code: Annotated[int, msgspec.Meta(ge=-128, le=255)]


class GateLost(Exception):
    """Raised when the gate has ended or does not answer: everything in the jail is lost."""


class GateClient:
    """The connection to one gate. Used only by the thread that has the session's turn."""

    def __init__(self, jail: Jail) -> None:
        self.jail = jail
        #: The worker's pid inside the jail.
        self.worker = 0
        #: The worker's exit code, negative for a signal; None while it runs.
        self.gone: int | None = None
        #: Cells whose checkpoints ended without our order, or were refused by the gate. The caller empties it.
        self.lost: set[int] = set()
        self._answers: list[dict[str, object]] = []
        #: Orders that have not been answered yet.
        self._owed: list[str] = []

    def start(
        self,
        step: Step,
        files: Sequence[JobFile] = (),
        on_listener: OnListener | None = None,
        descriptors: Sequence[int] = (),
        call_socket: int | None = None,
    ) -> None:
        """Send the waiting jail its one order; ``await_start`` waits until the worker has been forked."""
        control = self.jail.control
        control.settimeout(PATIENCE_S)
        try:
            listens = on_listener is not None
            send_order(control, [step], files, listener=listens, descriptors=descriptors, call_socket=call_socket)
            if on_listener is not None:
                on_listener(receive_listener(control))
            control.setblocking(False)
        except OSError as error:
            raise EnforcerFailed("gate", f"the waiting sandbox was gone when it got its order: {error}") from None

    def await_start(self) -> None:
        """Wait until the worker has been forked."""
        try:
            self.worker = _said(self._await("started"), _Started).pid
            for message in self._answers:
                if message["op"] == "broken":
                    raise EnforcerFailed("gate", _said(message, _Said).message)
        except (OSError, GateLost) as error:
            raise EnforcerFailed("gate", f"the waiting sandbox was gone when it got its order: {error}") from None

    def fileno(self) -> int:
        """Return the control socket's descriptor, for ``selectors``."""
        return self.jail.control.fileno()

    def read(self) -> None:
        """Read and sort the messages that have come; raises ``GateLost`` when the gate has ended."""
        try:
            data = self.jail.control.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            raise GateLost
        for message in self.jail.inbox.feed(data):
            if message["op"] == "gone":
                gone = _said(message, _Gone)
                if gone.pid == self.worker:
                    self.gone = gone.code
            elif message["op"] == "lost":
                self.lost.update(_said(message, _Said).cells)
            elif len(self._answers) < _MOST_ANSWERS:
                self._answers.append(message)
            else:
                raise EnforcerFailed("gate", "the jail sent more answers than it was asked for; it was ended")

    def await_gone(self) -> None:
        """Wait for the gate's report of how the worker ended; called when the worker is known to be dead."""
        deadline = time.monotonic() + PATIENCE_S
        while self.gone is None:
            if not readable(self.jail.control.fileno(), deadline - time.monotonic()):
                raise GateLost
            self.read()

    def interrupt(self, *, again: bool = False) -> None:
        """Send SIGINT to the worker's group, or ``again`` to the worker alone if it has done nothing since."""
        self.order("interrupt", owed=True, again=again)

    def settle(self) -> None:
        """Wait for all outstanding answers, so that a late interrupt or list of processes meets no later cell."""
        while self._owed:
            self._await(self._owed[0])
            self._owed.pop(0)

    def hold(self, cell: int, pid: int) -> None:
        """Order the gate to hold a reported process as the checkpoint of a cell; else it is reported as ``lost``."""
        now = int(time.clock_gettime(time.CLOCK_BOOTTIME) * _TICKS)
        self.order("hold", cell=cell, pid=pid, before=now)

    def drop(self, cells: list[int], *, wait: bool = False) -> None:
        """Order the gate to end the checkpoints of these cells; with ``wait``, return when their memory is free."""
        if cells:
            self.order("drop", cells=cells, wait=wait)
            if wait:
                self._await("drop")

    def promote(self, cell: int, keep: list[int], *, strict: bool, patient: bool) -> bool:
        """Order that the checkpoint of a cell becomes the worker, which the order ``wake`` wakes; False when gone.

        The gate ends all checkpoints but those of the cells in ``keep``; with ``strict``, also the processes that
        earlier cells left running. With ``patient`` it waits until the memory of what is ended is free.
        """
        self.settle()
        self.order("promote", cell=cell, keep=keep, strict=strict, patient=patient)
        answer = _said(self._await("promote"), _Said)
        if answer.ok:
            self.worker, self.gone = answer.pid, None
        return answer.ok

    def order(self, op: str, *, owed: bool = False, **fields: object) -> None:
        """Send an order that has no method of its own, and return at once; ``settle`` waits for one that is ``owed``.

        ``snapshot`` lists the processes that there are with a cell, ``look`` makes checkpoints look at their variables
        (in a fork, or the ``last`` time themselves), ``wake`` wakes the promoted checkpoint, ``kill`` kills the worker,
        ``ping`` is only answered: what the gate has to report comes before that.
        """
        control = self.jail.control
        try:
            control.settimeout(PATIENCE_S)
            control.sendall(frame({"op": op, **fields, "blobs": []}))
            control.setblocking(False)
        except OSError:
            raise GateLost from None
        if owed:
            self._owed.append(op)

    def _await(self, op: str) -> dict[str, object]:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            for position, message in enumerate(self._answers):
                if message["op"] == op:
                    return self._answers.pop(position)
            left = deadline - time.monotonic()
            if left <= 0 or not readable(self.jail.control.fileno(), left):
                raise GateLost
            self.read()


def _said(message: Mapping[str, object], kind: type[_T]) -> _T:
    try:
        return check(message, kind)
    except BadMessage as error:
        raise SessionError(f"a message out of the jail cannot be used: {error}") from None
