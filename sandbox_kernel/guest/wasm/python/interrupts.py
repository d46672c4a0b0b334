"""Interrupts a CPython in WebAssembly while it runs a cell: its memory gets what its own signal handler would write.

The worker's main thread is inside the guest then, and Python code of the worker does not run there. So each cell has a
listener: a thread that waits for the byte that the C part of Python's signal handling writes. Starting and ending a
thread takes a good part of a short cell's time, so a listener is started between cells, for the next one, and ended
when the host orders a checkpoint: checkpoints are forks, and a fork must find one thread.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Callable, Sequence

#: How long the worker waits for the thread to hear of an interrupt, in seconds.
_HEARD_S = 1.0


class _Listener:
    """A thread that calls ``heard`` with itself for each interrupt; for one cell."""

    def __init__(self, heard: Callable[[_Listener], None]) -> None:
        self._heard = heard
        self._read, self.told = os.pipe()
        os.set_blocking(self.told, False)
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        while data := os.read(self._read, 64):
            if signal.SIGINT in data:
                self._heard(self)

    def end(self) -> None:
        """End the thread."""
        os.close(self.told)
        self._thread.join()
        os.close(self._read)


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
        #: The listener of the next cell, or of the last one; and that of the cell that runs.
        self._listener: _Listener | None = None
        self._current: _Listener | None = None
        self._is_used = False

    def __enter__(self) -> MemoryInterrupts:
        self._waits = False
        self.listen()
        self._is_used, self._current = True, self._listener
        assert self._current is not None
        signal.set_wakeup_fd(self._current.told, warn_on_full_buffer=False)
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(-1)
        with self._lock:
            # An interrupt that its listener has not read yet is not the next cell's.
            self._current = None
        self.disarm()

    def listen(self) -> None:
        """Start the listener of the next cell, if there is none yet."""
        if self._is_used:
            self.stop_listening()
        if self._listener is None:
            self._listener = _Listener(self._interrupted_by)

    def stop_listening(self) -> None:
        """End the listener, between cells; the next cell starts another one."""
        listener, self._listener, self._is_used = self._listener, None, False
        if listener is not None:
            listener.end()

    def _interrupted_by(self, listener: _Listener) -> None:
        with self._lock:
            if listener is self._current:
                self._note()

    @property
    def came(self) -> bool:
        """Whether the guest has not yet noticed an interrupt. Python sets the first word back when it does."""
        return self._waits or (self._armed and self._words[0].value != 0)

    def interrupt(self) -> None:
        """Interrupt the guest, now or, if it is not armed yet, when it is."""
        with self._lock:
            self._note()

    def _note(self) -> None:
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
