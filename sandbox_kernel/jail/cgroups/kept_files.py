"""Files of the kernel that one owner reads again and again, through descriptors that stay open until it closes them.

A session reads its counters around every cell, and a run at every tick: opening a file takes ten times as long as
reading it. All owners of a process together keep at most a part of the descriptors that it may have; files beyond that
are opened anew at each use, so many sessions at once never use up the descriptors that programs of the host need.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref

#: The part of this process's descriptors that may be kept.
_SHARE = 8
#: The most bytes that the kernel writes into one of these files; it writes each as one piece.
_WHOLE = 1 << 14


def read_once(path: str) -> bytes:
    """Return the content of a file that the kernel writes as one piece; a file object would take thrice as long."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, _WHOLE)
    finally:
        os.close(fd)


class _Room:
    """How many more descriptors this process may keep. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept = 0
        self._most = os.sysconf("SC_OPEN_MAX") // _SHARE

    def take(self) -> bool:
        """Count one more descriptor; returns False when there is no room for it."""
        with self._lock:
            if self._kept >= self._most:
                return False
            self._kept += 1
            return True

    def give_back(self, number: int) -> None:
        """Count some descriptors less."""
        with self._lock:
            self._kept -= number


_room = _Room()


class KeptFiles:
    """The open files of one owner. Thread-safe: a reading never meets a descriptor that another thread has closed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: Descriptors by path, and those of them that were opened for writing too.
        self._open: dict[str, int] = {}
        self._writable: set[str] = set()
        self._closed = False
        _owners.add(self)

    def read(self, path: str) -> bytes:
        """Return the content of a file; raises ``OSError`` when it is gone, also if it was open already."""
        with self._lock:
            fd = self._open.get(path)
            if fd is not None:
                return os.pread(fd, _WHOLE, 0)
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                return os.pread(fd, _WHOLE, 0)
            finally:
                self._keep_or_close(path, fd)

    def write(self, path: str, text: str) -> None:
        """Write a text with a single call. What is read of this file later is read through the same descriptor.

        For ``memory.peak`` the kernel demands that: a peak is measured anew only for the descriptor that asked for it.
        """
        with self._lock:
            if path in self._writable:
                os.pwrite(self._open[path], text.encode(), 0)
                return
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                os.pwrite(fd, text.encode(), 0)
            finally:
                self._forget(path)
                if self._keep_or_close(path, fd):
                    self._writable.add(path)

    def has_gone(self, path: str) -> bool | None:
        """Whether a file that is open was removed; None when it is not open."""
        with self._lock:
            fd = self._open.get(path)
            if fd is None:
                return None
            try:
                os.pread(fd, 1, 0)
            except OSError:
                return True
            return False

    def number(self, path: str) -> int | None:
        """Return the number in a file; None if there is none."""
        try:
            return int(self.read(path))
        except (OSError, ValueError):
            return None

    def table(self, path: str) -> dict[str, int]:
        """Return names and numbers from a file; empty if there is no such file."""
        try:
            words = self.read(path).decode().split()
        except OSError:
            return {}
        # Each line is a name and a number; a limit may be the word ``max``.
        return {name: int(value) for name, value in zip(words[::2], words[1::2], strict=False) if value.isdigit()}

    def close(self) -> None:
        """Close every descriptor. Files that are used after that are opened and closed each time."""
        with self._lock:
            self._closed = True
            for path in list(self._open):
                self._forget(path)

    def _keep_or_close(self, path: str, fd: int) -> bool:
        if not self._closed and _room.take():
            self._open[path] = fd
            return True
        os.close(fd)
        return False

    def _forget(self, path: str) -> None:
        fd = self._open.pop(path, None)
        if fd is not None:
            self._writable.discard(path)
            os.close(fd)
            _room.give_back(1)

    def _leave_to_parent(self) -> None:
        self._lock = threading.Lock()
        for fd in self._open.values():
            with contextlib.suppress(OSError):
                os.close(fd)
        self._open, self._writable, self._closed = {}, set(), True


_owners: weakref.WeakSet[KeptFiles] = weakref.WeakSet()


def _forget_all() -> None:
    """In a forked child the owners belong to the parent: close the copies of their descriptors."""
    global _room
    _room = _Room()
    for owner in list(_owners):
        owner._leave_to_parent()


os.register_at_fork(after_in_child=_forget_all)


# Reads and writes the kernel's files of a control group.


def read(path: str) -> str:
    """Return the content of a file."""
    # Called before and after each cell: a buffered text file would take twice as long.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return b"".join(iter(lambda: os.read(fd, 1 << 16), b"")).decode()
    finally:
        os.close(fd)


def write(path: str, text: str) -> None:
    """Write a text with a single write call, as the kernel requires."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
