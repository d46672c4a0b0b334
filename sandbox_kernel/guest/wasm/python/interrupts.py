"""Interrupts a CPython in WebAssembly while it runs a cell: its memory gets what its own signal handler would write.

The worker's main thread is inside the guest then, and Python code of the worker does not run there. So each cell has a
thread that waits for the byte that the C part of Python's signal handling writes. The thread ends with the cell:
checkpoints are forks, and a fork must find one thread.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Sequence

#: How long the worker waits for the thread to hear of an interrupt, in seconds.
_HEARD_S = 1.0


class MemoryInterrupts:
    """Interrupts of one guest; ``base`` is where its memory begins, ``size`` is its least size.

    A guest is *armed* from the order of a cell until it says that the cell's code has ended: outside of that an
    interrupt would meet our own code.
    """

    def __init__(self, base: int, size: int, words: Sequence[int]) -> None:
        # A saved memory says itself where the words are; it may lie.
        if any(not isinstance(word, int) or not 0 <= word <= size - 4 for word in words):
            raise ValueError("the memory of the session has no place for an interrupt")
        self._words = [ctypes.c_int32.from_address(base + word) for word in words]
        self._lock = threading.Lock()
        self._armed = False
        self._waits = False
        self._written = threading.Event()
        self._thread: threading.Thread | None = None
        self._ends = (-1, -1)

    def __enter__(self) -> MemoryInterrupts:
        self._waits = False
        heard, told = self._ends = os.pipe()
        os.set_blocking(told, False)
        self._thread = threading.Thread(target=self._listen, args=(heard,), daemon=True)
        self._thread.start()
        signal.set_wakeup_fd(told, warn_on_full_buffer=False)
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(-1)
        heard, told = self._ends
        os.close(told)
        if self._thread is not None:
            self._thread.join()
        os.close(heard)
        self.disarm()

    def _listen(self, heard: int) -> None:
        while data := os.read(heard, 64):
            if signal.SIGINT in data:
                self.interrupt()

    @property
    def came(self) -> bool:
        """Whether the guest has not yet noticed an interrupt. Python sets the first word back when it does."""
        return self._waits or (self._armed and self._words[0].value != 0)

    def interrupt(self) -> None:
        """Interrupt the guest, now or, if it is not armed yet, when it is."""
        with self._lock:
            self._waits = not self._armed
            if self._armed:
                self._write()

    def expect(self) -> None:
        """Begin to wait for the host; see ``await_came``."""
        self._written.clear()

    def await_came(self) -> None:
        """Interrupt the guest because a wait for the host ended with a signal.

        The thread hears of that signal too. If it wrote after the guest went on, the guest would be interrupted twice.
        """
        if not self._written.wait(_HEARD_S):
            self.interrupt()

    def arm(self) -> None:
        """Let interrupts through: the code of a cell begins."""
        with self._lock:
            self._armed = True
            if self._waits:
                self._waits = False
                self._write()

    def disarm(self) -> None:
        """Let no interrupt through, and take back one that was not noticed: the code of the cell has ended."""
        with self._lock:
            self._armed = False
            # The first word belongs to the interrupt alone. Python puts the others right when it looks at them.
            self._words[0].value = 0

    def _write(self) -> None:
        for word in self._words:
            word.value = 1
        self._written.set()
