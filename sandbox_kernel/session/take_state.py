"""Copies the state of a session out of its jail into sealed memory of the host, to save it or to start another with it.

The worker is not trusted: what it writes is bounded, and only a jail makes variables of it. The variables of a Python
session come through a pipe, which needs no room in the work folder and no memory of the jail; a WebAssembly guest's
worker writes its memory itself.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import os
import threading
import time
from collections.abc import Collection
from pathlib import Path

import msgspec

from sandbox_kernel.errors import SessionError
from sandbox_kernel.jail.sealed_memory import SealedMemory
from sandbox_kernel.jail.streams import Stop, readable
from sandbox_kernel.limits import MIB, quoted
from sandbox_kernel.receipt import one_line
from sandbox_kernel.session.saved_file import INTERRUPTED, MOST_MEMORY, Age, SaveReport, State
from sandbox_kernel.session.worker.jailed_worker import JailedWorker
from sandbox_kernel.util.wire import check_or
from sandbox_kernel.workspace.transfer import take_folder
from sandbox_kernel.workspace.tree.rooted import Rooted

#: How long all tries may take, and how many there are; each but the last may find a variable that ends it.
SAVE_S, MAX_TRIES = 120.0, 6
_PART, _TICK_S = 1 << 20, 0.05


class StateAnswer(msgspec.Struct):
    """A worker's answer to ``image`` and ``load``; each kind of worker gives some of these."""

    size: int = 0
    #: Whether only what differs from a new guest was written.
    changes: bool = False
    problem: str | None = None
    #: Variables that ended the process that saved, and why.
    ended: dict[str, str] | None = None
    report: SaveReport | None = None
    open_files: list[str] = []
    elapsed_s: Age | None = None


def state_answer(said: object) -> StateAnswer:
    """Return the worker's answer; one of another form has no state and a problem."""
    return check_or(said, StateAnswer(problem="the worker answered in another form"))


class Intake:
    """Reads from a pipe, on a thread of its own, up to a number of bytes, until the ``with`` block ends."""

    def __init__(self, most: int) -> None:
        self._most = most
        try:
            self.memory = SealedMemory()
            self._reader, self.writer = os.pipe()
        except OSError as error:
            raise SessionError(f"the session's variables could not be taken out: {error.strerror}") from None
        #: How many bytes have come, and whether more came than was allowed.
        self.count, self.overflowed = 0, False
        self._all_written = False
        self._thread = threading.Thread(target=self._read, name="sandbox-save", daemon=True)

    def __enter__(self) -> Intake:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Read what is still in the pipe, and no more."""
        self._all_written = True
        os.close(self.writer)
        self._thread.join()

    def _read(self) -> None:
        part = bytearray(_PART)
        # Without memory for it less is counted than the worker has written, and that is noticed.
        with contextlib.suppress(OSError):
            while not self.overflowed:
                # A process of the session may keep the other end open, so an end of the pipe is not waited for.
                done = self._all_written
                if readable(self._reader, 0 if done else _TICK_S):
                    got = os.readv(self._reader, [part])
                    self.overflowed = self.count + got > self._most
                    if not self.overflowed:
                        self.memory.append(memoryview(part)[:got])
                        self.count += got
                    done = not got
                if done:
                    break
        os.close(self._reader)


def take_variables(worker: JailedWorker, memory_mb: int, stop: Stop, rights: Collection[str] = ()) -> State:
    """Return the variables of a session, whose worker must be between two cells.

    A variable that ends the process that saves is left out, and the others are taken without it. ``rights`` are
    variables of the environment that stay with this session.

    Raises ``SessionError`` when that is not possible, or ``stop`` was raised. The session goes on as it was.
    """
    deadline = time.monotonic() + SAVE_S
    lost: dict[str, str] = {}
    for _ in range(MAX_TRIES):
        with Intake(min(MOST_MEMORY, memory_mb * MIB)) as intake:
            order = {"folder": worker.jail.places.work, "lost": lost, "rights": sorted(rights)}
            text = json.dumps({**order, "cloudpickle": cloudpickle_source()})
            worker.allow_fork()
            left = max(1.0, deadline - time.monotonic())
            said = worker.ask("image", text, 0, left, intake.writer, stop).answer
        if stop.raised:
            raise SessionError(INTERRUPTED)
        answer = state_answer(said)
        if answer.ended is None or time.monotonic() > deadline:
            break
        lost.update(answer.ended)
    if not intake.count or intake.overflowed or intake.count != answer.size or answer.report is None:
        if intake.overflowed:
            why = f"they take more than the session's {memory_mb} MB"
        elif answer.ended is not None:
            why = one_line(f"the variables {', '.join(answer.ended)} ended it", 300)
        else:
            why = one_line(answer.problem or "the worker did not say why", 300)
        raise SessionError(
            f"the session's variables could not be stored: {why}; delete variables that are not needed, or give a "
            "cell more memory (memory_mb, --memory)"
        )
    intake.memory.seal()
    return State(intake.memory, report=answer.report)


@functools.cache
def cloudpickle_source() -> str:
    """Return the program of cloudpickle, which a worker runs: the Python inside may have none, or another version."""
    found = importlib.util.find_spec("cloudpickle")
    if found is None or not found.submodule_search_locations:
        raise SessionError("sessions are saved and loaded by cloudpickle, which is missing; pip install cloudpickle")
    return Path(found.submodule_search_locations[0], "cloudpickle.py").read_text(encoding="utf-8")


def take_state(worker: JailedWorker, *, for_fork: bool = False) -> State:
    """Return the memory of a WebAssembly guest, whose worker must be between two cells, and the files of the session.

    The worker writes into memory of the host, which is sealed then: the worker cannot change it afterwards. For a fork,
    which begins as the same guest, what differs from a new one is enough.
    """
    said: object = None

    def write(descriptor: int) -> None:
        nonlocal said
        said = worker.ask("image", "changes" if for_fork else "", 0, SAVE_S, descriptor).answer

    try:
        memory = SealedMemory.filled(write)
    except OSError as error:
        raise SessionError(f"the session's memory could not be taken out: {error.strerror}") from None
    answer = state_answer(said)
    if answer.open_files:
        names = ", ".join(quoted(name) for name in answer.open_files[:5])
        raise SessionError(f"files are open, which are no part of the session's memory: {names}; close them first")
    if answer.elapsed_s is None or not 0 < answer.size <= MOST_MEMORY or answer.size != len(memory):
        why = one_line(answer.problem or "it is not what the worker said", 300)
        raise SessionError(f"the session's memory could not be written: {why}; try a larger disk_mb")
    with Rooted(worker.jail.box_fd) as box:
        return State(memory, answer.elapsed_s, take_folder(box), changes=answer.changes)
