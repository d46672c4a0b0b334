"""Standard input of a run: given bytes, or a descriptor of the host that is read as data arrives."""

from __future__ import annotations

import os
import selectors
from functools import partial

from sandbox_kernel.jail.streams.output import CHUNK


class Feeder:
    """Standard input of one run, written as fast as the child reads it. The child need not read it.

    Args:
        fd: The pipe to the child.
        data: Bytes to write first.
        source: A descriptor of the caller, read when everything was written. Data that arrives there later reaches a
            program that runs already.
        held: Keep the input open for more from ``add``.

    """

    def __init__(self, fd: int, data: bytes | None, source: int | None = None, *, held: bool = False) -> None:
        self.fd = fd
        self.source = source
        self._held = held
        self._rest = memoryview(data or b"")
        os.set_blocking(fd, False)
        self.open = True
        if not self._rest and source is None and not held:
            self.close()

    @property
    def idle(self) -> bool:
        """Whether it is held open and everything that was added has been written."""
        return self.open and self._held and not self._rest

    def add(self, data: bytes) -> None:
        """Add input while it is held open. Call ``attend`` to have it written."""
        self._rest = memoryview(bytes(self._rest) + data)

    @property
    def hungry(self) -> bool:
        """Whether there is nothing to write until the source has more."""
        return self.open and not self._rest

    def attend(self, selector: selectors.BaseSelector) -> None:
        """Register with the loop's selector: to write when the child reads, or to read when the source has more."""
        while self.hungry and not self._held:
            assert self.source is not None
            try:
                selector.register(self.source, selectors.EVENT_READ, partial(self._source_has_more, selector))
                return
            except PermissionError:
                # Files and /dev/null cannot be waited for, but can always be read.
                self.read_some()
        if self.open and self._rest:
            selector.register(self.fd, selectors.EVENT_WRITE, partial(self._child_takes, selector))

    def _source_has_more(self, selector: selectors.BaseSelector, fd: int) -> None:
        selector.unregister(fd)
        self.read_some()
        self.attend(selector)

    def _child_takes(self, selector: selectors.BaseSelector, fd: int) -> None:
        if not self.write_some() or self.hungry:
            selector.unregister(fd)
            self.attend(selector)

    def read_some(self) -> None:
        """Read from the source, blocking if necessary. The end of the source is the end of input."""
        assert self.source is not None
        try:
            self._rest = memoryview(os.read(self.source, CHUNK))
        except BlockingIOError:
            return
        except OSError:
            self._rest = self._rest[:0]
        if not self._rest:
            self.close()

    def write_some(self) -> bool:
        """Write what fits. Returns False when nothing is left to do, also when the child closed its end."""
        try:
            self._rest = self._rest[os.write(self.fd, self._rest[:CHUNK]) :]
        except BlockingIOError:
            return True
        except OSError:
            self._rest, self.source, self._held = self._rest[:0], None, False
        if not self._rest and self.source is None and not self._held:
            self.close()
        return self.open

    def close(self) -> None:
        """End the input. May be called twice."""
        if self.open:
            self.open = False
            os.close(self.fd)
