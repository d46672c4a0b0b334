"""The host's side of a session's gate: sends orders, reads answers and reports.

The gate (``guest/session/checkpoint_gate.py``) answers an order with a message of the same name. It sends two messages
unasked: ``gone`` (the worker has ended) and ``lost`` (checkpoints have ended). The gate is our program, but it shares
the jail with hostile code, so its messages are checked (``jail/gate_messages.py``). A checkpoint is named by its
cell.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, TypeVar

import msgspec

from sandbox_kernel.errors import EnforcerFailed, SessionError
from sandbox_kernel.jail.gate_messages import JobFile, Step, exit_code, frame, number, receive_listener, send_order
from sandbox_kernel.jail.jail import Jail
from sandbox_kernel.jail.run_job import OnListener
from sandbox_kernel.jail.streams import readable
from sandbox_kernel.session.worker.messages import clean_text
from sandbox_kernel.workspace.changes import FileDiff

#: How long the gate may take for an order: it waits for killed processes and writes files, never for a cell.
PATIENCE_S = 20.0
#: The most answers that may wait to be read by their callers.
_MOST_ANSWERS = 1000
_TICKS = os.sysconf("SC_CLK_TCK")


_Text = Annotated[str, msgspec.Meta(max_length=1000)]
_Kind = TypeVar("_Kind")


class _Broken(msgspec.Struct):
    message: _Text


class _Lost(msgspec.Struct):
    cells: list[int]


class _Snapshot(msgspec.Struct):
    held: Annotated[int, msgspec.Meta(ge=0)]


class _Lives(msgspec.Struct):
    ok: bool


class _Compared(msgspec.Struct):
    files: list[tuple[str, str, str]]
    problem: _Text


class _Promoted(msgspec.Struct):
    ok: bool
    pid: Annotated[int, msgspec.Meta(ge=0)]
    folder: _Text


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
        #: Memory of the gate that the copies of the work folder take.
        self.copies_bytes = 0

    def start(
        self,
        step: Step,
        files: Sequence[JobFile] = (),
        on_listener: OnListener | None = None,
        descriptors: Sequence[int] = (),
        hatch: int | None = None,
    ) -> None:
        """Send the waiting jail its one order; ``await_start`` waits until the worker has been forked."""
        control = self.jail.control
        control.settimeout(PATIENCE_S)
        try:
            send_order(control, [step], files, listener=on_listener is not None, descriptors=descriptors, hatch=hatch)
            if on_listener is not None:
                on_listener(receive_listener(control))
            control.setblocking(False)
        except OSError as error:
            raise EnforcerFailed("gate", f"the waiting sandbox was gone when it got its order: {error}") from None

    def await_start(self) -> None:
        """Wait until the worker has been forked."""
        try:
            self.worker = int(number(self._await("started"), "pid"))
            for message in self._answers:
                if message["op"] == "broken":
                    raise EnforcerFailed("gate", _declared(message, _Broken).message)
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
                if int(number(message, "pid")) == self.worker:
                    self.gone = exit_code(message)
            elif message["op"] == "lost":
                self.lost.update(_declared(message, _Lost).cells)
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
        """Send SIGINT to the worker and its process group, as a terminal does.

        With ``again``, to the worker alone, and only if it has done nothing since the first one.
        """
        self._order({"op": "interrupt", "again": again})
        self._owed.append("interrupt")

    def settle(self) -> None:
        """Wait for all outstanding answers, so that a late interrupt or folder copy cannot touch the next cell."""
        while self._owed:
            answer = self._await(self._owed[0])
            if self._owed.pop(0) == "snapshot":
                self.copies_bytes = _declared(answer, _Snapshot).held

    def kill_worker(self) -> None:
        """Kill the worker at once; the promotion ends the processes that it started."""
        self._order({"op": "kill"})
        self._owed.append("kill")

    def hold(self, cell: int, pid: int) -> None:
        """Order the gate to hold the process that the worker reported as the checkpoint of a cell.

        The gate reports the checkpoint as ``lost`` if that process cannot be it.
        """
        now = int(time.clock_gettime(time.CLOCK_BOOTTIME) * _TICKS)
        self._order({"op": "hold", "cell": cell, "pid": pid, "before": now})

    def lives(self, cell: int) -> bool:
        """Whether the checkpoint of a cell is alive."""
        self.settle()
        self._order({"op": "lives", "cell": cell})
        return _declared(self._await("lives"), _Lives).ok

    def snapshot(self, cell: int) -> None:
        """Order a copy of the work folder and return at once; call ``settle`` before the next cell."""
        self._order({"op": "snapshot", "cell": cell})
        self._owed.append("snapshot")

    def look(self, cells: list[int]) -> None:
        """Order these checkpoints to look at their variables, each in a fork; the worker reports what they find."""
        self._order({"op": "look", "cells": cells})

    def compare(self, before: int, after: int) -> tuple[tuple[FileDiff, ...], str]:
        """Return how the work folder differs between two checkpoints, and what of that could not be found out."""
        self.settle()
        self._order({"op": "compare", "before": before, "after": after})
        found = _declared(self._await("compare"), _Compared)
        # Their texts are the session's own.
        files = tuple(FileDiff(clean_text(path), kind, clean_text(patch)) for path, kind, patch in found.files)
        return files, found.problem

    def drop(self, cells: list[int], *, wait: bool = False) -> None:
        """Order the gate to end the checkpoints of these cells; with ``wait``, return when their memory is free."""
        if cells:
            self._order({"op": "drop", "cells": cells, "wait": wait})
            if wait:
                self._await("drop")

    def promote(self, cell: int, keep: list[int], *, strict: bool, patient: bool) -> str | None:
        """Order that the checkpoint of a cell becomes the worker and the work folder is restored.

        The gate ends all checkpoints but those of the cells in ``keep``; with ``strict``, also the processes that
        earlier cells left running. With ``patient`` it waits until the memory of what is ended is free. Returns None
        when the checkpoint was gone; otherwise why the files were not restored, empty when they were.
        """
        self.settle()
        self._order({"op": "promote", "cell": cell, "keep": keep, "strict": strict, "patient": patient})
        answer = _declared(self._await("promote"), _Promoted)
        if not answer.ok:
            return None
        self.worker, self.gone = answer.pid, None
        return answer.folder

    def _order(self, order: Mapping[str, object]) -> None:
        control, data = self.jail.control, frame({**order, "blobs": []})
        try:
            # The gate waits for orders, so there is room for one nearly always: no need to wait with a time limit.
            sent = control.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            raise GateLost from None
        if sent < len(data):
            self._send_patiently(data[sent:])

    def _send_patiently(self, data: bytes) -> None:
        control = self.jail.control
        control.settimeout(PATIENCE_S)
        try:
            control.sendall(data)
        except OSError:
            raise GateLost from None
        finally:
            with contextlib.suppress(OSError):
                control.setblocking(False)

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


def _declared(message: Mapping[str, object], declared: type[_Kind]) -> _Kind:
    try:
        return msgspec.convert(message, declared)
    except msgspec.ValidationError as error:
        raise SessionError(f"a message out of the jail cannot be used: {error}") from None
