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

from sandbox_kernel.errors import EnforcerFailed, SessionError
from sandbox_kernel.jail.gate_messages import JobFile, Step, exit_code, frame, number, receive_listener, send_order
from sandbox_kernel.jail.jail import Jail
from sandbox_kernel.jail.run_job import OnListener
from sandbox_kernel.jail.streams import readable
from sandbox_kernel.session.worker.message_reader import clean_text
from sandbox_kernel.workspace.changes import FileDiff

#: How long the gate may take for an order: it waits for killed processes and writes files, never for a cell.
PATIENCE_S = 20.0
#: The most answers that may wait to be read by their callers.
_MOST_ANSWERS = 1000
_TICKS = os.sysconf("SC_CLK_TCK")


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
        """Send the waiting jail its one order; ``await_start`` waits until the worker has been forked.

        Args:
            step: the worker's program, environment and limits.
            files: files that the gate writes into the jail first.
            on_listener: called with the jail's own listening socket, for a proxy to serve.
            descriptors: open descriptors that the worker inherits.
            hatch: the hatch to host functions; None without any.

        """
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
                    raise EnforcerFailed("gate", text(message, "message"))
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
                self.lost.update(cells_of(message))
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

        Args:
            again: send it to the worker alone, and only if it has done nothing since the first one.

        """
        self._order({"op": "interrupt", "again": again})
        self._owed.append("interrupt")

    def settle(self) -> None:
        """Wait for all outstanding answers, so that a late interrupt or folder copy cannot touch the next cell."""
        while self._owed:
            answer = self._await(self._owed[0])
            if self._owed.pop(0) == "snapshot":
                self.copies_bytes = int(number(answer, "held"))

    def kill_worker(self) -> None:
        """Kill the worker at once; the handover ends the processes that it started."""
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
        return self._await("lives").get("ok") is True

    def snapshot(self, cell: int) -> None:
        """Order a copy of the work folder and return at once; call ``settle`` before the next cell."""
        self._order({"op": "snapshot", "cell": cell})
        self._owed.append("snapshot")

    def look(self, cells: list[int], *, last: bool = False) -> None:
        """Order these checkpoints to look at their variables; the worker reports what they find.

        With ``last``, they look themselves and cannot be gone back to afterwards; otherwise a fork of each does.
        """
        if cells:
            self._order({"op": "look", "cells": cells, "last": last})

    def let_go(self, cells: Sequence[int]) -> None:
        """Order the gate to forget the copies of the work folder for these cells; their checkpoints live on."""
        if cells:
            self._order({"op": "let_go", "cells": list(cells)})

    def compare(self, before: int, after: int) -> tuple[tuple[FileDiff, ...], str]:
        """Return how the work folder differs between two checkpoints, and what of that could not be found out."""
        self.settle()
        self._order({"op": "compare", "before": before, "after": after})
        answer = self._await("compare")
        return files_of(answer), text(answer, "problem")

    def drop(self, cells: list[int], *, wait: bool = False) -> None:
        """Order the gate to end the checkpoints of these cells; with ``wait``, return when their memory is free."""
        if cells:
            self._order({"op": "drop", "cells": cells, "wait": wait})
            if wait:
                self._await("drop")

    def handover(self, cell: int, keep: tuple[int, ...], *, strict: bool, patient: bool) -> str | None:
        """Order the handover: the checkpoint of a cell becomes the worker and the work folder is restored.

        Args:
            cell: the cell whose checkpoint takes over.
            keep: cells whose checkpoints stay; the gate ends all others.
            strict: also end the processes that earlier cells left running.
            patient: wait until the memory of what is ended is free.

        Returns:
            None when the checkpoint was gone. Otherwise why the files were not restored; empty when they were.

        """
        self.settle()
        self._order({"op": "handover", "cell": cell, "keep": list(keep), "strict": strict, "patient": patient})
        answer = self._await("handover")
        if answer.get("ok") is not True:
            return None
        self.worker, self.gone = int(number(answer, "pid")), None
        return text(answer, "folder")

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


def text(message: Mapping[str, object], key: str) -> str:
    """Return a text of at most 1000 characters from a message of the gate."""
    value = message.get(key)
    if not isinstance(value, str) or len(value) > 1000:
        raise SessionError(f"a message out of the jail has no usable {key!r}")
    return value


def files_of(message: Mapping[str, object]) -> tuple[FileDiff, ...]:
    """Return the differences of files in a message of the gate; their texts are the session's own."""
    found = message.get("files")
    if not isinstance(found, list) or not all(
        isinstance(part, list) and len(part) == 3 and all(isinstance(word, str) for word in part) for part in found
    ):
        raise SessionError("a message out of the jail has no usable 'files'")
    return tuple(FileDiff(clean_text(path), kind, clean_text(patch)) for path, kind, patch in found)


def cells_of(message: Mapping[str, object]) -> list[int]:
    """Return the cell numbers in a message of the gate."""
    found = message.get("cells")
    if not isinstance(found, list) or not all(type(cell) is int for cell in found):
        raise SessionError("a message out of the jail has no usable 'cells'")
    return found
