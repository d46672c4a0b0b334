"""The host's side of the gate that stands beside a session: orders, answers, and the news that the worker is gone.

The gate answers each order with a message of the same name; ``gone`` and ``lost`` come by themselves. It is ours, but
what shares a jail with hostile code is read with care (``jail/core/gate_messages.py``). Checkpoints are named by
their cells.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence

from sandbox_kernel.errors import EnforcerFailed, SessionError
from sandbox_kernel.jail.core.gate_messages import JobFile, Step, exit_code, frame, number, send_order
from sandbox_kernel.jail.core.handed_over import receive_listener
from sandbox_kernel.jail.core.jail import Jail
from sandbox_kernel.jail.core.job import OnListener
from sandbox_kernel.jail.streams.readable import readable

#: How long the gate may take for an order. It waits for killed processes and writes files; it never waits for a cell.
PATIENCE_S = 20.0
#: Answers that nobody has taken yet.
_MOST_ANSWERS = 1000
_TICKS = os.sysconf("SC_CLK_TCK")


class GateLost(Exception):
    """The gate is gone, and with it everything in the jail."""


class GateClient:
    """Speaks to one gate. Belongs to whoever holds the session's turn."""

    def __init__(self, jail: Jail) -> None:
        self.jail = jail
        #: The worker's pid inside the jail, and how it ended once it has.
        self.worker = 0
        self.gone: int | None = None
        #: Cells whose checkpoints have ended without an order of ours, or were none; the reader empties it.
        self.lost: set[int] = set()
        self._answers: list[dict[str, object]] = []
        self._owed: list[str] = []
        #: What the copies of the work folder hold in the gate's memory.
        self.copies_bytes = 0

    def start(
        self,
        step: Step,
        files: Sequence[JobFile] = (),
        on_listener: OnListener | None = None,
        descriptors: Sequence[int] = (),
    ) -> None:
        """Give the waiting jail its one order; returns when the worker has been forked.

        ``on_listener`` is given the jail's own listening socket, for a proxy to serve.
        """
        control = self.jail.control
        control.settimeout(PATIENCE_S)
        try:
            send_order(control, [step], files, listener=on_listener is not None, descriptors=descriptors)
            if on_listener is not None:
                on_listener(receive_listener(control))
            control.setblocking(False)
            self.worker = int(number(self._await("started"), "pid"))
            for message in self._answers:
                if message["op"] == "broken":
                    raise EnforcerFailed("gate", text(message, "message"))
        except (OSError, GateLost) as error:
            raise EnforcerFailed("gate", f"the waiting sandbox was gone when it got its order: {error}") from None

    def fileno(self) -> int:
        """For ``selectors``."""
        return self.jail.control.fileno()

    def read(self) -> None:
        """Take what has come; ``GateLost`` when there is nobody any more."""
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
                raise EnforcerFailed("gate", "more answers came out of the jail than anybody asked for; it was ended")

    def await_gone(self) -> None:
        """The worker is known to be dead; return when the gate has said how it ended."""
        deadline = time.monotonic() + PATIENCE_S
        while self.gone is None:
            if not readable(self.jail.control.fileno(), deadline - time.monotonic()):
                raise GateLost
            self.read()

    def interrupt(self) -> None:
        """SIGINT to the worker and its process group, as a terminal does."""
        self._order({"op": "interrupt"})
        self._owed.append("interrupt")

    def settle(self) -> None:
        """Return when nothing is under way any more: a late interrupt or copy would meet the next cell."""
        while self._owed:
            answer = self._await(self._owed[0])
            if self._owed.pop(0) == "snapshot":
                self.copies_bytes = int(number(answer, "held"))

    def kill_worker(self) -> None:
        """End the worker at once; what it started is ended by the handover."""
        self._order({"op": "kill"})
        self._owed.append("kill")

    def hold(self, cell: int, pid: int) -> None:
        """Let the gate hold what the worker says is the checkpoint of a cell; if it cannot be one, it is ``lost``."""
        now = int(time.clock_gettime(time.CLOCK_BOOTTIME) * _TICKS)
        self._order({"op": "hold", "cell": cell, "pid": pid, "before": now})

    def lives(self, cell: int) -> bool:
        """Whether the checkpoint of a cell lives."""
        self.settle()
        self._order({"op": "lives", "cell": cell})
        return self._await("lives").get("ok") is True

    def snapshot(self, cell: int) -> None:
        """Copy the work folder in the background; ``settle`` before the next cell."""
        self._order({"op": "snapshot", "cell": cell})
        self._owed.append("snapshot")

    def drop(self, cells: list[int], *, wait: bool = False) -> None:
        """Checkpoints that nobody will go back to; ``wait`` until their memory is free."""
        if cells:
            self._order({"op": "drop", "cells": cells, "wait": wait})
            if wait:
                self._await("drop")

    def handover(self, cell: int, keep: tuple[int, ...], *, strict: bool) -> str | None:
        """Let the checkpoint of a cell take over. Returns what became of the files (empty: restored), None when it was
        gone. ``worker`` is its pid then.
        """
        self.settle()
        self._order({"op": "handover", "cell": cell, "keep": list(keep), "strict": strict})
        answer = self._await("handover")
        if answer.get("ok") is not True:
            return None
        self.worker, self.gone = int(number(answer, "pid")), None
        return text(answer, "folder")

    def _order(self, order: Mapping[str, object]) -> None:
        control = self.jail.control
        control.settimeout(PATIENCE_S)
        try:
            control.sendall(frame({**order, "blobs": []}))
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
    """A short text out of a message."""
    value = message.get(key)
    if not isinstance(value, str) or len(value) > 1000:
        raise SessionError(f"a message out of the jail has no usable {key!r}")
    return value


def cells_of(message: Mapping[str, object]) -> list[int]:
    """The numbers of cells in a message."""
    found = message.get("cells")
    if not isinstance(found, list) or not all(type(cell) is int for cell in found):
        raise SessionError("a message out of the jail has no usable 'cells'")
    return found
