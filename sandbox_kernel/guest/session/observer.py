"""Looks at the variables after a cell, in a fork of its checkpoint that ends when it has looked.

Nothing is looked at until the host asks: a cell is not made slower. The process that looks runs the user's own code
(``__reduce__``, ``__repr__``), so it is not the checkpoint: whatever that code does to the variables is gone with the
process. It writes what it finds into memory that it shares with the worker, step by step, so that something is known
even when its time is over before it is done.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import signal
import struct
import tempfile
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, Iterator, List, Tuple

    Found = Dict[str, List[str]]
    Look = Callable[[], Iterator[Found]]

#: How much one look may report, and how long it may take.
AREA, SECONDS = 2 << 20, 2.0
#: The most looks that wait to be sent to the host.
MAX_WAITING = 100
#: In front of the area: the length of the report, which half it is in, and whether the look is done.
_FRONT = struct.Struct("=QBB")
#: References taken before the first cell, because a cell may replace these functions.
_dumps, _loads, _fork, _exit = json.dumps, json.loads, os.fork, os._exit
_HALF = (AREA - _FRONT.size) // 2


class Observer:
    """The looks of one worker, by the number of the cell. A checkpoint inherits it, with all cells so far."""

    def __init__(self) -> None:
        self._areas: Dict[int, mmap.mmap] = {}

    def expect(self, cell: int) -> None:
        """Make room for the look at a cell; called before its checkpoint is forked, which shares that room."""
        while len(self._areas) >= MAX_WAITING:
            self._areas.pop(min(self._areas))
        if cell not in self._areas:
            try:
                self._areas[cell] = mmap.mmap(-1, AREA)
            except PermissionError:  # the host watches memory, and only that of files is shared
                with contextlib.suppress(OSError), tempfile.TemporaryFile() as file:
                    os.posix_fallocate(file.fileno(), 0, AREA)  # to write without room on the disk would kill
                    self._areas[cell] = mmap.mmap(file.fileno(), AREA)

    def start(self, cell: int, look: Look, *, last: bool) -> None:
        """Look, in a fork of this process, the checkpoint of the cell; returns at once. One given up looks itself."""
        area = self._areas.get(cell)
        if area is None or _FRONT.unpack_from(area)[2]:
            return
        try:
            pid = 0 if last else _fork()
        except OSError:
            _FRONT.pack_into(area, 0, 0, 0, 1)
            return
        if pid == 0:
            try:
                _look_and_write(area, look)
            finally:
                self.ended(cell)
                _exit(0)

    def ended(self, cell: int) -> None:
        """Note that nothing more will come from the look at a cell: its process has ended, in whatever way."""
        area = self._areas.get(cell)
        if area is not None:
            size, half, _ = _FRONT.unpack_from(area)
            _FRONT.pack_into(area, 0, size, half, 1)

    def finished(self, cells: List[int]) -> List[Tuple[int, Found]]:
        """Return the looks at these cells and forget them; waits for those that are not done."""
        deadline = time.monotonic() + SECONDS + 0.5
        found = []
        for cell in cells:
            area = self._areas.pop(cell, None)
            if area is None:
                continue
            while not _FRONT.unpack_from(area)[2] and time.monotonic() < deadline:
                time.sleep(0.0005)
            report = _read(area)
            if report is not None:
                found.append((cell, report))
        return found


def _read(area: mmap.mmap) -> Found | None:
    size, half, _ = _FRONT.unpack_from(area)
    if not 0 < size <= _HALF or half > 1:
        return None
    start = _FRONT.size + half * _HALF
    try:
        report: Found = _loads(area[start : start + size])
    except ValueError:
        return None
    return report


def _look_and_write(area: mmap.mmap, look: Look) -> None:
    """Look, in the fork. The two halves of the area take turns: the one that is named in front is always whole."""
    nowhere = os.open("/dev/null", os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    for number in (signal.SIGALRM, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    with contextlib.suppress(OSError):
        os.nice(5)
    half = 0
    for found in look():
        data = _dumps(found, ensure_ascii=True).encode()
        if len(data) > _HALF:
            break
        start = _FRONT.size + half * _HALF
        area[start : start + len(data)] = data
        _FRONT.pack_into(area, 0, len(data), half, 0)
        half = 1 - half
    size, half, _ = _FRONT.unpack_from(area)
    _FRONT.pack_into(area, 0, size, half, 1)
