"""Finds what a program changed in a work folder: takes snapshots and compares two of them.

A snapshot is ``lstat`` of every entry; links are not followed and few files are read. Size, times, inode and mode show
whether a file changed. They include the change time, which no program can set, so resetting the modification time hides
nothing. Times are coarse: a file that is written just before and just after a snapshot may have the same times. The
content of such young files is hashed, and so is the content of a file whose earlier hash is known.

When programs run on after a snapshot (``shared``), a file may be mapped, and only the first write to each page gives it
a new time. Such a snapshot finds out for each changed file whether a process can still write to it (``writers.py``).
While one can, every snapshot hashes its content; a file that is too large for that counts as modified.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field, replace

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.ground.values import dataclass
from sandbox_kernel.limits import MIB
from sandbox_kernel.model import FsChange
from sandbox_kernel.workspace.tree.paths import display_name
from sandbox_kernel.workspace.tree.rooted import Rooted, chunks, content_hash
from sandbox_kernel.workspace.tree.walk import DIRECTORY, FILE, SYMLINK, TreeEntry, WalkLimits, is_cut
from sandbox_kernel.workspace.writers import open_for_writing, tells_who_writes

#: Longer than the coarsest kernel tick (10 ms). A file that is older than this at a snapshot shows every later change.
TICK_NS = 20_000_000
#: A larger file is compared by ``lstat`` alone.
HASHED_FILE_BYTES = MIB
#: The same limit for a file that a process can still write to.
HASHED_OPEN_BYTES = 16 * MIB
#: Most bytes that one snapshot reads.
HASHED_BYTES = 64 * MIB


@dataclass(frozen=True)
class Snapshot:
    """The entries of a tree at one time. ``unseen`` maps folders that were not seen completely to the reason.

    ``open`` are the inodes of files that a process could write to; ``unasked`` those that were not checked for it in
    time.
    """

    entries: Mapping[str, TreeEntry] = field(default_factory=dict)
    digests: Mapping[str, bytes] = field(default_factory=dict)
    unseen: Mapping[str, str] = field(default_factory=dict)
    taken_ns: int = 0
    open: frozenset[int] = frozenset()
    unasked: frozenset[int] = frozenset()

    @property
    def truncated(self) -> bool:
        """Whether part of the tree was not seen because of a limit or an unreadable folder."""
        return is_cut(self.unseen)

    def is_young(self, entry: TreeEntry) -> bool:
        """Return whether the entry could have changed after this snapshot without new times."""
        return entry.ctime_ns > self.taken_ns - TICK_NS

    def knows(self, path: str) -> bool:
        """Return whether this snapshot shows if ``path`` existed."""
        if not self.unseen or path in self.entries:
            return True
        return not any(folder in self.unseen for folder in _folders_above(path))


def _folders_above(path: str) -> Iterator[str]:
    while path:
        path = path.rpartition("/")[0]
        yield path


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
    look = Snapshot(entries, {}, dict(walk.unseen), taken_ns)
    return _read(rooted, look, since or Snapshot(), deadline, shared=shared)


def _read(rooted: Rooted, look: Snapshot, since: Snapshot, deadline: float, *, shared: bool) -> Snapshot:
    """Return the snapshot with digests and open files added."""
    digests: dict[str, bytes] = {}
    still_open: set[int] = set()
    unasked: set[int] = set()
    maybe_open = since.open | since.unasked
    budget = HASHED_BYTES
    tells = shared and tells_who_writes(rooted.fileno())
    for path, entry in look.entries.items():
        if entry.type != FILE:
            continue
        known = since.digests.get(path)
        if entry.inode not in maybe_open and entry == since.entries.get(path) and not since.is_young(entry):
            if known is not None:
                digests[path] = known  # certainly unchanged: not read again
            continue
        hashed = known is not None or look.is_young(entry)
        if not (hashed or shared):
            continue
        if time.monotonic() >= deadline:
            if shared:
                unasked.add(entry.inode)
            continue
        with _opened(rooted, entry) as fd:
            is_open = shared and (fd is None or open_for_writing(fd, tells=tells))
            if is_open:
                still_open.add(entry.inode)
            was_open = is_open or entry.inode in since.open
            most = min(HASHED_OPEN_BYTES if was_open else HASHED_FILE_BYTES, budget)
            if fd is not None and (hashed or was_open) and entry.size <= most:
                budget -= entry.size
                digest = _digest(fd, most)
                if digest is not None:
                    digests[path] = digest
    return replace(look, digests=digests, open=frozenset(still_open), unasked=frozenset(unasked))


@contextmanager
def _opened(rooted: Rooted, entry: TreeEntry) -> Iterator[int | None]:
    """Yield a descriptor of a file; None when it cannot be read, so that ``lstat`` alone decides."""
    try:
        fd = rooted.open_file(entry.names)
    except SandboxError:
        yield None
        return
    try:
        yield fd
    finally:
        os.close(fd)


def _digest(fd: int, most_bytes: int) -> bytes | None:
    """Return the hash of an open file; None when it cannot be read."""
    try:
        return content_hash(chunks(fd, most_bytes))
    except OSError:
        return None


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
                found.append(_change(entry, "modified"))
        elif before.knows(path):
            origins = vanished.get(_identity(entry))
            if origins:
                origin = origins.pop(0)
                gone.discard(origin)
                found.append(replace(_change(entry, "renamed"), renamed_from=origin))
            else:
                found.append(_change(entry, "created"))
    found += [_change(before.entries[path], "deleted") for path in gone]
    return tuple(sorted(found, key=lambda change: change.path))


def _change(entry: TreeEntry, kind: str) -> FsChange:
    return FsChange(path=entry.path, kind=kind, type=entry.type, size=entry.size)


def _identity(entry: TreeEntry) -> tuple[object, ...]:
    """Return the values that a rename keeps. The time is among them, because inode numbers are reused."""
    return entry.inode, entry.type, entry.size, entry.mtime_ns, entry.target


def _differs(old: TreeEntry, new: TreeEntry, old_digest: bytes | None, new_digest: bytes | None) -> bool:
    if old.type != new.type or old.mode != new.mode or old.target != new.target:
        return True
    if new.type == DIRECTORY or new.type == SYMLINK:
        return False
    if new.type != FILE:
        return old.inode != new.inode
    if old.size != new.size:
        return True
    if old_digest is not None and new_digest is not None:
        return old_digest != new_digest
    return (old.inode, old.mtime_ns, old.ctime_ns) != (new.inode, new.mtime_ns, new.ctime_ns)


def displayed(changes: tuple[FsChange, ...]) -> tuple[FsChange, ...]:
    """Return the changes with names that are safe to show (``display_name``), for results.

    ``collect`` needs the exact names that ``compare`` returns.
    """
    return tuple(
        replace(
            change,
            path=display_name(change.path),
            renamed_from=None if change.renamed_from is None else display_name(change.renamed_from),
        )
        for change in changes
    )
