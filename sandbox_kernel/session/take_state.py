"""Copies the state of a session out of its jail into sealed memory of the host, to save it or to start another with it.

The worker is not trusted: what it writes is bounded by the session's memory limit, and only a jail makes variables of
it. The variables of a Python session, and the memory of a WebAssembly guest, come through a pipe, which needs no room
in the work folder and no memory of the jail.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import os
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sandbox_kernel.errors import SessionError
from sandbox_kernel.jail.jail import Jail
from sandbox_kernel.jail.sealed_memory import SealedMemory
from sandbox_kernel.jail.streams import Stop, readable
from sandbox_kernel.limits import MIB, quoted
from sandbox_kernel.receipt import one_line
from sandbox_kernel.session.saved_file import INTERRUPTED, MOST_MEMORY, check_elapsed
from sandbox_kernel.session.worker.worker import JailedWorker
from sandbox_kernel.workspace.transfer import MAX_PACKED_BYTES, MAX_PACKED_FILES, FolderState, pack_files
from sandbox_kernel.workspace.tree.rooted import Rooted

#: How long all tries may take, and how many there are; each but the last may find a variable that ends it.
SAVE_S, MAX_TRIES = 120.0, 6
_PART, _TICK_S = 1 << 20, 0.05
#: How many copies of states a session holds that uses a GPU; each may be as large as the session.
MOST_COPIES = 2


@dataclass(frozen=True)
class State:
    """The state of a session: the memory of its guest, its age, and the files of its work folder."""

    memory: SealedMemory
    elapsed_s: float
    files: Mapping[str, bytes] = field(default_factory=dict)
    #: The work folder of a session of processes, with modes, times, links and empty folders.
    folder: FolderState = field(default_factory=FolderState)
    #: What the worker said of it: which variables are in it.
    report: Mapping[str, object] = field(default_factory=dict)


class Intake:
    """Reads from a pipe, on a thread of its own, up to a number of bytes. Use it as a context manager."""

    def __init__(self, most: int) -> None:
        self._most = most
        try:
            self._data = SealedMemory()
            self._reader, self.writer = os.pipe()
        except OSError as error:
            raise SessionError(f"the session's variables could not be taken out: {error.strerror}") from None
        self._count = 0
        #: Whether more came than was allowed.
        self.overflowed = False
        self._all_written = False
        self._part = bytearray(_PART)
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

    def sealed(self) -> SealedMemory:
        """Return what has come; called after ``end``."""
        self._data.seal()
        return self._data

    def _read(self) -> None:
        try:
            # Without memory for it less is counted than the worker has written, and that is noticed.
            with contextlib.suppress(OSError):
                while self._read_part():
                    pass
        finally:
            os.close(self._reader)

    def _read_part(self) -> bool:
        """Read some bytes; False when there is nothing more to read."""
        # A process of the session may keep the other end open, so an end of the pipe is not waited for.
        done = self._all_written
        if not readable(self._reader, 0 if done else _TICK_S):
            return not done
        got = os.readv(self._reader, [self._part])
        if self._count + got > self._most:
            self.overflowed = True
            return False
        self._data.append(memoryview(self._part)[:got])
        self._count += got
        return got > 0


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
            answer = worker.ask("image", text, 0, left, intake.writer, stop).answer
            count = intake.end()
        if stop.raised:
            raise SessionError(INTERRUPTED)
        ended = answer.get("ended")
        if not isinstance(ended, dict) or time.monotonic() > deadline:
            break
        lost.update({name: str(why) for name, why in ended.items()})
    report = answer.get("report")
    if not count or intake.overflowed or count != answer.get("size") or not isinstance(report, dict):
        raise SessionError(
            f"the session's variables could not be stored: {_why_not(answer, intake.overflowed, memory_mb)}; delete "
            "variables that are not needed, or give a cell more memory (memory_mb, --memory)"
        )
    return State(intake.sealed(), 0.0, report=report)


@functools.cache
def cloudpickle_source() -> str:
    """Return the program of cloudpickle, which a worker runs: the Python inside may have none, or another version."""
    found = importlib.util.find_spec("cloudpickle")
    if found is None or not found.submodule_search_locations:
        raise SessionError("sessions are saved and loaded by cloudpickle, which is missing; pip install cloudpickle")
    return Path(found.submodule_search_locations[0], "cloudpickle.py").read_text(encoding="utf-8")


def _why_not(answer: Mapping[str, object], overflowed: bool, memory_mb: int) -> str:
    if overflowed:
        return f"they take more than the session's {memory_mb} MB"
    ended = answer.get("ended")
    found = f"the variables {', '.join(map(str, ended))} ended it" if isinstance(ended, dict) else answer.get("problem")
    return one_line(str(found or "the worker did not say why"), 300)


def take_state(worker: JailedWorker) -> State:
    """Return the memory of a WebAssembly guest, whose worker must be between two cells, and the files of the session.

    The worker writes into memory of the host, which is sealed then: the worker cannot change it afterwards.
    """
    answer: Mapping[str, object] = {}

    def write(descriptor: int) -> None:
        nonlocal answer
        answer = worker.ask("image", "", 0, SAVE_S, descriptor).answer

    try:
        memory = SealedMemory.filled(write)
    except OSError as error:
        raise SessionError(f"the session's memory could not be taken out: {error.strerror}") from None
    size, elapsed = _told(answer)
    if len(memory) != size:
        raise SessionError("the session's memory is not what its worker said; nothing was saved")
    return State(memory, elapsed, files_of(worker.jail))


def _told(answer: Mapping[str, object]) -> tuple[int, float]:
    """Return the size of what was written, and the session's age; raises ``SessionError`` when nothing was."""
    size, opened = answer.get("size"), answer.get("open_files")
    if isinstance(opened, list) and opened:
        names = ", ".join(quoted(name) for name in opened[:5])
        raise SessionError(f"files are open, which are no part of the session's memory: {names}; close them first")
    try:
        elapsed = check_elapsed(answer.get("elapsed_s"))
    except ValueError:
        size, elapsed = None, 0.0
    if not isinstance(size, int) or not 0 < size <= MOST_MEMORY:
        why = one_line(str(answer.get("problem") or "the worker did not say why"), 300)
        raise SessionError(f"the session's memory could not be written: {why}; restart the session and try again")
    return size, elapsed


def files_of(jail: Jail) -> dict[str, bytes]:
    """Return the files of the work folder; raises ``SessionError`` when they are too many or too large."""
    with Rooted(os.dup(jail.box_fd)) as box:
        return dict(pack_files(box, MAX_PACKED_BYTES, MAX_PACKED_FILES).items())


@dataclass(frozen=True)
class StateCopy:
    """A state, and the cells that make the variables which could not be copied, by their names."""

    state: State
    recipes: Mapping[str, str]


class StateCopies:
    """Copies of states of a session that uses a GPU, by node: it makes no checkpoints, but can be saved.

    ``checkpoint`` makes a copy, ``checkout`` and a rollback load it. The oldest one goes when there are too many.
    """

    def __init__(self) -> None:
        self._held: dict[int, StateCopy] = {}

    def __len__(self) -> int:
        return len(self._held)

    def keep(self, node: int, copy: StateCopy) -> None:
        """Hold the copy of a node, instead of an earlier one of the same node."""
        self._held.pop(node, None)
        self._held[node] = copy
        while len(self._held) > MOST_COPIES:
            del self._held[next(iter(self._held))]

    def of(self, node: int) -> StateCopy | None:
        """Return the copy of a node; None without one."""
        return self._held.get(node)

    def nearest(self, line: Sequence[int], until: int) -> int | None:
        """Return the first node of a line that has a copy, before the node ``until``; None when there is none."""
        for node in line:
            if node == until:
                return None
            if node in self._held:
                return node
        return None
