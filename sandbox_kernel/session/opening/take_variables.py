"""Takes the variables of a Python session out of its jail, through a pipe into sealed memory of the host.

The pipe needs no room in the work folder and no memory of the jail. The worker is not trusted: what it writes is
bounded by the session's memory limit, and only a jail makes variables of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time

from sandbox_kernel.errors import SessionError
from sandbox_kernel.ground.visible import one_line
from sandbox_kernel.jail.streams.readable import readable
from sandbox_kernel.jail.streams.sealed_memory import SealedMemory
from sandbox_kernel.jail.streams.stop import Stop
from sandbox_kernel.limits import MIB
from sandbox_kernel.session.opening.saved_file import MOST_MEMORY
from sandbox_kernel.session.opening.wasm_state import State, files_of
from sandbox_kernel.session.worker.worker import JailedWorker

#: How long all tries may take, and how many variables may end the process that saves.
SAVE_S, MAX_TRIES = 120.0, 5
_PART, _TICK_S = 1 << 20, 0.05


class Intake:
    """Reads from a pipe, on a thread of its own, up to a number of bytes. Use it as a context manager."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._reader, self.writer = os.pipe()
        self._data = SealedMemory()
        self._count = 0
        self._all_written = False
        self._thread = threading.Thread(target=self._read, name="sandbox-save", daemon=True)

    def __enter__(self) -> Intake:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> int:
        """Read what is still in the pipe, and no more. Returns how many bytes have come."""
        if not self._all_written:
            self._all_written = True
            os.close(self.writer)
            self._thread.join()
        return self._count

    @property
    def overflowed(self) -> bool:
        """Whether more came than was allowed."""
        return self._count > self._most

    def sealed(self) -> SealedMemory:
        """Return what has come; called after ``end``."""
        self._data.seal()
        return self._data

    def _read(self) -> None:
        # A process of the session may keep the other end open, so an end of the pipe is not waited for.
        part = bytearray(_PART)
        try:
            while True:
                done = self._all_written
                if not readable(self._reader, 0 if done else _TICK_S):
                    if done:
                        return
                    continue
                got = os.readv(self._reader, [part])
                self._count += got
                if not got or self.overflowed:
                    return
                self._data.append(memoryview(part)[:got])
        finally:
            os.close(self._reader)


def take_variables(worker: JailedWorker, memory_mb: int, stop: Stop) -> State:
    """Return the variables and the files of a session, whose worker must be between two cells.

    Raises ``SessionError`` when that is not possible, or ``stop`` was raised. The session goes on as it was.
    """
    most = min(MOST_MEMORY, memory_mb * MIB)
    deadline = time.monotonic() + SAVE_S
    lost: dict[str, str] = {}
    while True:
        order = json.dumps({"folder": worker.jail.places.work, "lost": lost})
        worker.permit_fork()
        with contextlib.ExitStack() as cleaning:
            try:
                intake = cleaning.enter_context(Intake(most))
            except OSError as error:
                raise SessionError(f"the session's variables could not be taken out: {error.strerror}") from None
            left = max(1.0, deadline - time.monotonic())
            answer = worker.ask("image", order, 0, left, intake.writer, stop).answer
            count = intake.end()
        if stop.raised:
            raise SessionError("it was interrupted: nothing was saved, and the session is as it was")
        ended = answer.get("ended")
        if isinstance(ended, dict) and len(lost) < MAX_TRIES and time.monotonic() < deadline:
            lost.update({name: str(why) for name, why in ended.items() if isinstance(name, str)})
            continue
        if intake.overflowed:
            raise SessionError(
                f"the session's variables take more than its {memory_mb} MB of memory when they are stored; delete "
                "variables that are not needed, or give a cell more memory (memory_mb, --memory)"
            )
        report = answer.get("report")
        if not count or count != answer.get("size") or not isinstance(report, dict):
            why = one_line(str(answer.get("problem") or "the worker did not say why"), 300)
            raise SessionError(
                f"the session's variables could not be stored: {why}; delete variables that are not needed, or give a "
                "cell more memory (memory_mb, --memory)"
            )
        return State(intake.sealed(), 0.0, files_of(worker.jail), report=report)
