"""Measures the private folder of a jail that has no file system of its own. Best effort.

A program may make a million files between two ticks, so each call continues where the last one stopped and takes a few
milliseconds; longer while the whole file system loses more space than the jail may use. It follows no link, and goes up
only to the same folder that it came down from. Deleted files that are still held take space too and are found through
the jail's processes (``deleted_files``).
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field

from sandbox_kernel.jail.accounting.meter import MAX_INODES, Disk
from sandbox_kernel.jail.accounting.processes import descriptor_tables, has_memory, speaker

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: Seconds for a normal measurement, for one while space is vanishing, and for the last one of a run.
_LOOK_S, _URGENT_S, _LAST_S = 0.004, 0.05, 5.0
#: After a search for deleted files, the pause is this many times as long as the search took.
_REST = 10
_ENTRIES_BETWEEN_CLOCKS = 64
_BLOCK = 512
#: Larger files are remembered during a pass, because a file that is moved meanwhile may be seen twice.
_REMEMBERED_BYTES = 1 << 20


@dataclass
class _Pass:
    """One pass through the whole folder, and how far it has come."""

    used: int = 0
    entries: int = 0
    unreadable: bool = False
    met: set[int] = field(default_factory=set)


class FolderWatch:
    """Watches one folder that may hold ``limit_bytes``; ``members`` returns the processes whose deleted files count."""

    def __init__(self, path: str, limit_bytes: int, members: Callable[[], list[int]]) -> None:
        self._path = path
        self._limit = limit_bytes
        self._members = members
        self._now = _Pass()
        self._steps = self._walk(self._now)
        self._rest_until = 0.0
        self._deleted = Deleted()
        self._before = _taken(path)
        self._urgent = False

    def measure(self, *, last: bool = False) -> Disk:
        """Continue the pass for a moment. ``last`` starts a new one and takes the time for the whole folder."""
        found = self._measure(last=last)
        if found.over:
            self.forget()
        return found

    def forget(self) -> None:
        """Start again: what was seen may have been removed since, for example by a rollback."""
        self._deleted, self._rest_until = Deleted(), 0.0
        self._begin()

    def _measure(self, *, last: bool) -> Disk:
        now = time.monotonic()
        urgent = self._room_vanishes()
        if now >= self._rest_until and not last:
            with contextlib.suppress(OSError):
                device = os.stat(self._path).st_dev
                self._deleted = deleted_files(self._members(), device, thorough=urgent)
            self._rest_until = now + _REST * (time.monotonic() - now)
        if last or urgent > self._urgent:
            self._begin()
        self._urgent = urgent
        deadline = now + (_LAST_S if last else _URGENT_S if urgent else _LOOK_S)
        found = self._judge()
        while not found.over and time.monotonic() < deadline:
            ended = next(self._steps, self) is self
            found = self._judge()
            if ended:
                if not last:
                    self._begin()
                return found
        # The folder is too large to be measured in time, and the file system shows that space has vanished.
        return Disk(full=found.full or (last and urgent), over=found.over)

    def close(self) -> None:
        """Close the descriptor of an unfinished pass."""
        self._steps.close()

    def _begin(self) -> None:
        self._steps.close()
        self._now = _Pass()
        self._steps = self._walk(self._now)

    def _judge(self) -> Disk:
        seen = self._now
        used = seen.used + self._deleted.used
        # The kernel stops a single file at the limit; a run must be ended only for more than that.
        beyond = used > self._limit + max(1 << 20, self._limit // 32)
        # If a program hides files while space vanishes, it is assumed to be the cause.
        hides = self._urgent and self._deleted.hidden
        over = seen.unreadable or seen.entries > MAX_INODES or beyond or hides
        return Disk(full=over or used >= self._limit, over=over)

    def _room_vanishes(self) -> bool:
        """Whether the whole file system, which others use too, has lost more space than this folder may use."""
        (bytes_before, files_before), (bytes_now, files_now) = self._before, _taken(self._path)
        return bytes_now - bytes_before > self._limit or files_now - files_before > MAX_INODES

    def _walk(self, seen: _Pass) -> Generator[None, None, None]:
        fd = os.open(self._path, _OPEN)
        try:
            way: list[tuple[int, list[str]]] = []
            level: list[str] = []
            yield from _scan(fd, seen, level)
            way.append((os.fstat(fd).st_ino, level))
            while way:
                _, deeper = way[-1]
                if deeper:
                    try:
                        child = os.open(deeper.pop(), _OPEN, dir_fd=fd)
                    except PermissionError:
                        # A folder that the program made unreadable could hold anything.
                        seen.unreadable = True
                        return
                    except OSError:
                        continue  # it is gone, or is no folder any more
                    os.close(fd)
                    fd, level = child, []
                    way.append((os.fstat(fd).st_ino, level))
                    yield from _scan(fd, seen, level)
                    continue
                way.pop()
                if way:
                    parent = os.open("..", _OPEN, dir_fd=fd)
                    os.close(fd)
                    fd = parent
                    if os.fstat(fd).st_ino != way[-1][0]:
                        return  # the folder was moved meanwhile; the next pass starts at the top
                yield
        except OSError:
            return
        finally:
            os.close(fd)


def _taken(path: str) -> tuple[int, int]:
    found = os.statvfs(path)
    return (found.f_blocks - found.f_bfree) * found.f_frsize, found.f_files - found.f_ffree


def _scan(fd: int, seen: _Pass, deeper: list[str]) -> Iterator[None]:
    """Count the entries of one folder, and add its subfolders to ``deeper``."""
    with os.scandir(fd) as entries:
        for number, entry in enumerate(entries):
            if number % _ENTRIES_BETWEEN_CLOCKS == 0:
                yield
            seen.entries += 1
            # The listing tells folders from files, so only files need a stat call.
            if entry.is_dir(follow_symlinks=False):
                deeper.append(entry.name)
                continue
            try:
                info = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            size = info.st_blocks * _BLOCK
            if info.st_nlink > 1 or size >= _REMEMBERED_BYTES:
                if info.st_ino in seen.met:
                    continue
                seen.met.add(info.st_ino)
            seen.used += size


# Finds deleted files that still take space, through the processes that hold them. For ``FolderWatch``.
#
# A deleted file lives on in a descriptor of any thread, in a mapping, and in a message of a socket. Descriptors are
# always checked. The others are checked only while the file system loses space, because there may be many of them.

_DELETED = b" (deleted)\n"


@dataclass
class Deleted:
    """``sizes`` by inode. ``hidden``: some files are held where their size cannot be read."""

    sizes: dict[int, int] = field(default_factory=dict)
    hidden: bool = False

    @property
    def used(self) -> int:
        """Return the bytes on disk."""
        return sum(self.sizes.values())


def deleted_files(pids: Iterable[int], device: int | None, *, thorough: bool) -> Deleted:
    """Find deleted files of a device, or of all, that these processes hold; ``thorough`` also checks mappings."""
    found = Deleted()
    for pid in pids:
        try:
            for table in descriptor_tables(pid):
                _in_descriptors(f"/proc/{table}", device, found, in_flight=thorough)
            if thorough:
                _in_mappings(speaker(pid), device, found)
        except PermissionError:  # the process is ending, or its own user may not look into it
            found.hidden = found.hidden or has_memory(pid)
        except OSError:
            continue  # a process that has ended holds nothing
    return found


def _in_descriptors(task: str, device: int | None, found: Deleted, *, in_flight: bool) -> None:
    try:
        names = os.listdir(f"{task}/fd")
    except FileNotFoundError:
        return  # one thread has ended, others may still run
    for name in names:
        with contextlib.suppress(OSError):
            info = os.stat(f"{task}/fd/{name}")
            if in_flight and stat.S_ISSOCK(info.st_mode) and not found.hidden:
                # A message may carry descriptors. The kernel does not say which ones.
                with open(f"{task}/fdinfo/{name}", "rb") as file:
                    found.hidden = any(line.startswith(b"scm_fds:") and int(line.split()[1]) > 0 for line in file)
            _note(info, device, found)


def _note(info: os.stat_result, device: int | None, found: Deleted) -> None:
    if info.st_nlink == 0 and stat.S_ISREG(info.st_mode) and device in (None, info.st_dev):
        found.sizes[info.st_ino] = info.st_blocks * _BLOCK


def _in_mappings(task: str, device: int | None, found: Deleted) -> None:
    number = task.rpartition("/")[2]
    place = None if device is None else f"{os.major(device):02x}:{os.minor(device):02x}".encode()
    with open(f"/proc/{task}/maps", "rb") as file:
        for line in file:
            if not line.endswith(_DELETED):
                continue
            addresses, _, _, where, inode = line.split(maxsplit=5)[:5]
            if place in (None, where) and int(inode) not in found.sizes:
                try:
                    _note(os.stat(f"/proc/{number}/map_files/{addresses.decode()}"), device, found)
                except PermissionError:  # only root may read it
                    found.hidden = True
                except OSError:
                    continue  # no longer mapped
