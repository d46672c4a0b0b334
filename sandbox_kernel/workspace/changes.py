"""Finds what a program changed in a work folder: takes snapshots and compares two of them, or one with given files.

A snapshot is ``lstat`` of every entry; links are not followed and few files are read. Size, times, inode and mode show
whether a file changed. They include the change time, which no program can set, so resetting the modification time hides
nothing. Times are coarse: a file that is written just before and just after a snapshot may have the same times. The
content of such young files is hashed, and so is the content of a file whose earlier hash is known.

When programs run on after a snapshot (``shared``), a file may be mapped, and only the first write to each page gives it
a new time. Such a snapshot finds out for each changed file whether a process can still write to it. While one can,
every snapshot hashes its content; a file that is too large for that counts as modified.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from typing import NamedTuple, TypeVar

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.limits import MIB
from sandbox_kernel.model import FsChange, Limit, Note, Status, notes
from sandbox_kernel.util.values import dataclass
from sandbox_kernel.workspace.tree.beneath import as_owner_of, libc
from sandbox_kernel.workspace.tree.paths import display_name, folders_above
from sandbox_kernel.workspace.tree.rooted import Rooted, chunks, content_hash
from sandbox_kernel.workspace.tree.walk import FILE, GONE, SYMLINK, Entry, WalkLimits, is_cut

Item = TypeVar("Item")

#: Longer than the coarsest kernel tick (10 ms). A file that is older than this at a snapshot shows every later change.
TICK_NS = 50_000_000
#: A larger file is compared by ``lstat`` alone.
HASHED_FILE_BYTES = MIB
#: The same limit for a file that a process can still write to.
HASHED_OPEN_BYTES = 16 * MIB
#: Most bytes that one snapshot reads.
HASHED_BYTES = 64 * MIB
#: How many changes a result tells of.
MAX_CHANGES = 1000
#: What is read to tell renamed files from new ones. A program can make any number of files that are as large as one it
#: was given, at no cost to itself when they are holes; beyond this they are told as created and deleted.
RENAMES_READ_BYTES = 64 * MIB
#: File systems (magic numbers of ``statfs``) where a mapped file counts as open: tmpfs, ext2 to ext4, XFS, F2FS. On an
#: overlay, a mapping holds the file of the lower layer instead.
_TELLING = (0x01021994, 0xEF53, 0x58465342, 0xF2F52010)
_F_SETSIG = 10

#: Takes changed files out of a work folder; returns notes on what was not kept.
Keep = Callable[[Rooted, Sequence[FsChange]], Sequence[Note]]


@dataclass(frozen=True, kw_only=True)
class FileDiff(FsChange):
    """A file that differs between two states of a session, and the difference of its lines."""

    #: A unified diff; empty where the content is no text or too long.
    patch: str = ""


@dataclass(frozen=True)
class Snapshot:
    """The entries of a tree at one time. ``unseen`` maps folders that were not seen completely to the reason.

    ``open`` are the inodes of files that a process could write to; ``unasked`` those that were not checked for it in
    time.
    """

    entries: Mapping[str, Entry] = field(default_factory=dict)
    digests: Mapping[str, bytes] = field(default_factory=dict)
    unseen: Mapping[str, str] = field(default_factory=dict)
    taken_ns: int = 0
    open: frozenset[int] = frozenset()
    unasked: frozenset[int] = frozenset()

    @property
    def truncated(self) -> bool:
        """Whether part of the tree was not seen because of a limit or an unreadable folder."""
        return is_cut(self.unseen)

    def is_young(self, entry: Entry) -> bool:
        """Return whether the entry could have changed after this snapshot without new times."""
        return entry.ctime_ns > self.taken_ns - TICK_NS

    def still_has(self, now: Entry) -> bool:
        """Whether a file that looks like this now certainly has the content that it had then."""
        then = self.entries.get(now.path)
        if then is None or then._replace(data=None) != now or self.is_young(now):
            return False
        return now.inode not in self.open and now.inode not in self.unasked

    def taking(self, now: Snapshot, is_taken: Callable[[str], bool]) -> Snapshot:
        """Return this snapshot with what a later one has at the paths that ``is_taken`` chooses."""

        def merged(old: Mapping[str, Item], new: Mapping[str, Item]) -> dict[str, Item]:
            kept = {path: item for path, item in old.items() if not is_taken(path)}
            return kept | {path: item for path, item in new.items() if is_taken(path)}

        return Snapshot(
            merged(self.entries, now.entries),
            merged(self.digests, now.digests),
            {**self.unseen, **now.unseen},
            self.taken_ns or now.taken_ns,
            self.open | now.open,
            self.unasked | now.unasked,
        )

    def knows(self, path: str) -> bool:
        """Return whether this snapshot shows if ``path`` existed."""
        if not self.unseen or path in self.entries:
            return True
        return not any(folder in self.unseen for folder in ("", *folders_above(path)))


def snapshot(
    rooted: Rooted, limits: WalkLimits | None = None, *, since: Snapshot | None = None, shared: bool = False
) -> Snapshot:
    """Take a snapshot of a tree. Never raises for the content of the tree: what was not seen is in ``unseen``.

    ``since`` is the earlier snapshot that it will be compared with. ``shared`` is true when programs that use the tree
    run on.
    """
    limits = limits or WalkLimits()
    taken_ns, deadline = time.time_ns(), time.monotonic() + limits.seconds
    walk = rooted.walk(limits)
    entries = {entry.path: entry for entry in walk}
    taken = Snapshot(entries, {}, dict(walk.unseen), taken_ns)
    return _read(rooted, taken, since or Snapshot(), deadline, shared=shared)


def _read(rooted: Rooted, taken: Snapshot, since: Snapshot, deadline: float, *, shared: bool) -> Snapshot:
    """Return the snapshot with digests and open files added."""
    digests: dict[str, bytes] = {}
    still_open: set[int] = set()
    unasked: set[int] = set()
    budget = HASHED_BYTES
    tells = shared and tells_who_writes(rooted.fileno())
    for path, entry in taken.entries.items():
        if entry.type != FILE:
            continue
        known = since.digests.get(path)
        if since.still_has(entry):
            if known is not None:
                digests[path] = known  # not read again
            continue
        hashed = known is not None or taken.is_young(entry)
        if not (hashed or shared):
            continue
        if time.monotonic() >= deadline:
            if shared:
                unasked.add(entry.inode)
            continue
        try:
            opened = rooted.open_file(entry.names)
        except SandboxError:
            # It cannot be read: ``lstat`` alone decides.
            still_open.update([entry.inode] if shared else ())
            continue
        with open(opened, "rb", buffering=0):
            is_open = shared and open_for_writing(opened, tells=tells)
            if is_open:
                still_open.add(entry.inode)
            was_open = is_open or entry.inode in since.open
            most = min(HASHED_OPEN_BYTES if was_open else HASHED_FILE_BYTES, budget)
            if (hashed or was_open) and entry.size <= most:
                budget -= entry.size
                with suppress(OSError):
                    digests[path] = content_hash(chunks(opened, most))
    return replace(taken, digests=digests, open=frozenset(still_open), unasked=frozenset(unasked))


def open_for_writing(file: int, *, tells: bool) -> bool:
    """Return whether any process has a file open for writing or mapped. ``file`` is our descriptor, open for reading.

    Processes are not inspected, because a process can forbid that. The kernel grants a read lease only on a file that
    no process can write to. The lease is released at once; a process that opens the file in that moment waits. Returns
    True as well where the kernel cannot tell (``tells`` is false).
    """
    if not tells:
        return True
    try:
        with as_owner_of(file):
            # If a process opens the file now, the kernel sends SIGIO, which ends a program; SIGURG is ignored.
            fcntl.fcntl(file, _F_SETSIG, signal.SIGURG)
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:
        return True
    return False


def tells_who_writes(folder: int) -> bool:
    """Return whether ``open_for_writing`` can tell on the file system of an open folder."""
    if sys.platform != "linux":
        return False
    found = (ctypes.c_long * 64)()
    return libc().fstatfs(folder, ctypes.byref(found)) == 0 and found[0] in _TELLING


def compare(before: Snapshot, after: Snapshot) -> tuple[FsChange, ...]:
    """Return the differences of two snapshots, sorted by path.

    Reports nothing for folders that a snapshot did not see: check ``truncated`` of both. A file that moved unchanged is
    ``renamed``, also as part of a folder. ``modified`` means another content, type, mode or link target. A folder is
    not modified by changes in it.
    """
    vanished: dict[tuple[object, ...], list[str]] = {}
    gone: set[str] = set()
    for path, entry in before.entries.items():
        if path not in after.entries and after.knows(path):
            vanished.setdefault(_identity(entry), []).append(path)
            gone.add(path)
    found: list[FsChange] = []
    for path, entry in after.entries.items():
        old = before.entries.get(path)
        if old is not None:
            digests = before.digests.get(path), after.digests.get(path)
            # A process could write to it without a new time, and its earlier content is not known.
            could = old.inode in before.open or old.inode in before.unasked & after.open
            unsure = could and None in digests and entry.type == FILE
            if unsure or _differs(old, entry, *digests):
                found.append(FsChange(path=path, kind="modified", type=entry.type, size=entry.size))
        elif before.knows(path):
            origins = vanished.get(_identity(entry))
            origin = origins.pop(0) if origins else None
            gone.discard(origin or "")
            kind = "created" if origin is None else "renamed"
            found.append(FsChange(path=path, kind=kind, type=entry.type, size=entry.size, renamed_from=origin))
    old_ones = [before.entries[path] for path in gone]
    found += [FsChange(path=old.path, kind="deleted", type=old.type, size=old.size) for old in old_ones]
    return tuple(sorted(found, key=lambda change: change.path))


def _identity(entry: Entry) -> tuple[object, ...]:
    """Return the values that a rename keeps. The time is among them, because inode numbers are reused."""
    return entry.inode, entry.type, entry.size, entry.mtime_ns, entry.target


def _differs(old: Entry, new: Entry, old_digest: bytes | None, new_digest: bytes | None) -> bool:
    if old.type != new.type or old.mode != new.mode or old.target != new.target:
        return True
    if new.is_dir or new.type == SYMLINK:
        return False
    if new.type != FILE:
        return old.inode != new.inode
    if old.size != new.size:
        return True
    if old_digest is not None and new_digest is not None:
        return old_digest != new_digest
    return (old.inode, old.mtime_ns, old.ctime_ns) != (new.inode, new.mtime_ns, new.ctime_ns)


def displayed(changes: Iterable[FsChange], early: Iterable[FsChange] = ()) -> tuple[FsChange, ...]:
    """Return the changes with names that are safe to show (``display_name``), for results.

    ``early`` are displayed ones of an earlier look that are told now; of one path the later change is.
    """
    shown = {}
    for change in changes:
        path, origin = display_name(change.path), change.renamed_from
        shown[path] = replace(change, path=path, renamed_from=None if origin is None else display_name(origin))
    return (*(change for change in early if change.path not in shown), *shown.values())


#: What stands at each path after a program: an entry, which may be ``GONE``; None for what the user's folder has.
Now = Mapping[str, Entry | None]


def standing(changes: Iterable[FsChange]) -> dict[str, Entry | None]:
    """Return what stands now at each path that these changes touch."""
    now: dict[str, Entry | None] = {}
    for change in changes:
        if change.renamed_from is not None:
            now.setdefault(change.renamed_from, Entry(change.renamed_from, GONE))
        kind = GONE if change.kind == "deleted" else change.type
        now[change.path] = Entry(change.path, kind, change.size)
    return now


@dataclass(frozen=True)
class LayerChanges:
    """The changes since the last look, for the result; and what stands now at each path that they touch."""

    changes: tuple[FsChange, ...]
    now: Now
    truncated: bool


# What one run left in its folder, found when the sandbox is dead and nothing can change any more. The folder held just
# the files that the host had put there, so no look before the start is needed.


class Left(NamedTuple):
    """What a run left in its folder, as its result tells it; ``here`` says how it saw the user's folder."""

    changes: tuple[FsChange, ...] = ()
    notes: tuple[Note, ...] = ()
    here: str = ""

    @classmethod
    def of(
        cls, changes: Sequence[FsChange], truncated: bool, keep: Callable[[], Sequence[Note]] | None, *, kept: bool
    ) -> Left:
        """Tell these changes, and keep them unless the run was stopped (``kept`` is False)."""
        told = incomplete(truncated, len(changes))
        if keep is not None and kept:
            told += keep()
        elif keep is not None and changes:
            told.append(notes.stopped_run_keeps_no_files())
        return cls(displayed(changes[:MAX_CHANGES]), tuple(told))


def leaves_files(status: Status, limit: Limit | None) -> bool:
    """Whether the files of a run are kept: a run is a transaction, so one that was stopped leaves nothing."""
    return status in (Status.OK, Status.FAILED) and limit in (None, Limit.OUTPUT)


def files_left(box_fd: int, given: Mapping[str, bytes | str], keep: Keep | None, *, kept: bool) -> Left:
    """Compare a work folder with the files that were given.

    ``keep`` may take files out of the folder, by their true names, unless the run was stopped (``kept`` is False).
    """
    with os.scandir(box_fd) as scan:
        # The first name tells, without a list of the million that there may be.
        if not given and next(scan, None) is None:
            return Left()
    with Rooted(box_fd) as box:
        walk = box.walk()
        now = {entry.path: entry for entry in walk}
        found = compare(Snapshot(_before(box, given, now)), Snapshot(now, {}, walk.unseen))
        taken = None if keep is None or not found else lambda: keep(box, found)
        return Left.of(found, is_cut(walk.unseen), taken, kept=kept)


def _before(box: Rooted, given: Mapping[str, bytes | str], now: Mapping[str, Entry]) -> dict[str, Entry]:
    """Return the folder as the host had filled it: what has the same content is the entry that is there now."""
    above = {folder for name in given for folder in folders_above(name)}
    then = {folder: now[folder] for folder in above if folder in now and now[folder].is_dir}
    missing: dict[tuple[int, bytes], list[str]] = {}
    for name, content in given.items():
        data = content.encode() if isinstance(content, str) else content
        there = now.get(name)
        then[name] = Entry(name, FILE, len(data))
        if there is None:
            missing.setdefault((len(data), content_hash([data])), []).append(name)
        elif there.is_file and there.size == len(data) and _digest(box, there) == content_hash([data]):
            then[name] = there
    sizes = {size for size, _ in missing}
    budget = RENAMES_READ_BYTES
    for path, entry in now.items():
        if path not in then and entry.is_file and entry.size in sizes and entry.size <= budget:
            budget -= entry.size
            if names := missing.get((entry.size, _digest(box, entry))):
                name = names.pop()
                then[name] = entry._replace(path=name)
    return then


def incomplete(truncated: bool, found: int) -> list[Note]:
    """Why a list of changes does not hold all: the folder was not read in full, or too many were found."""
    cut = [notes.changes_cut(found, MAX_CHANGES)] if found > MAX_CHANGES else []
    return [notes.changes_incomplete(), *cut] if truncated else cut


def _digest(box: Rooted, entry: Entry) -> bytes:
    with suppress(SandboxError, OSError), box.reading(entry.names) as fd:
        return content_hash(chunks(fd, entry.size))
    return b""


def same_entry(one: Rooted, other: Rooted, path: str) -> bool:
    """Whether a path is a file with the same content and mode in both, a folder of the same mode, or the same link."""
    names = tuple(path.split("/"))
    mine, theirs = one.entry_at(names), other.entry_at(names)
    if mine is None or theirs is None or mine.type != theirs.type:
        return False
    if mine.type == SYMLINK:
        return mine.target == theirs.target
    if mine.is_dir:
        return mine.bits == theirs.bits
    if not mine.is_file or (mine.size, mine.bits) != (theirs.size, theirs.bits):
        return False
    return _digest(one, mine) == _digest(other, theirs) != b""
