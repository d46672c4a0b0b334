"""What a program did to a work folder: two looks at it and the difference between them.

A look is ``lstat`` of everything, nothing followed and hardly anything read. Size, times, inode and mode tell whether a
file changed; the change time, which no program can set, is among them, so a modification cannot be hidden by putting
the modification time back. Times are coarse, though: a file written in the same tick before and after a look shows the
same ones. The content of files *that* young is hashed, and so is the content of a file that has a hash to compare with.

Where programs live on after a look, a file may be mapped, and then only the first write to each page gives it a new
time. Such looks (``shared``) ask of each file that has changed whether anything can still write to it (``writers.py``).
While something can, its content is hashed at each look, and one that is too large for that counts as modified.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.limits import MIB
from sandbox_kernel.model import FsChange
from sandbox_kernel.workspace.tree.paths import display_name
from sandbox_kernel.workspace.tree.rooted import Rooted, chunks
from sandbox_kernel.workspace.tree.walk import DIRECTORY, FILE, SYMLINK, TreeEntry, WalkLimits
from sandbox_kernel.workspace.writers import open_for_writing, tells_who_writes

#: Longer than the coarsest kernel tick (10 ms): a file changed this long before the look can be told from later ones.
TICK_NS = 20_000_000
#: A file beyond this is compared by what ``lstat`` says alone.
HASHED_FILE_BYTES = MIB
#: The same for a file that somebody can still write to.
HASHED_OPEN_BYTES = 16 * MIB
#: What one look reads at most.
HASHED_BYTES = 64 * MIB


@dataclass(frozen=True)
class Snapshot:
    """One look at a tree. ``unseen`` maps folders that were not seen in full (``""`` is the root) to the reason.

    ``open`` are the inodes of files that somebody could write to, ``unasked`` those that there was no time to ask for.
    """

    entries: Mapping[str, TreeEntry] = field(default_factory=dict)
    digests: Mapping[str, bytes] = field(default_factory=dict)
    unseen: Mapping[str, str] = field(default_factory=dict)
    taken_ns: int = 0
    open: frozenset[int] = frozenset()
    unasked: frozenset[int] = frozenset()

    @property
    def truncated(self) -> bool:
        """Whether a limit or an unreadable folder kept part of the tree from being seen."""
        return bool(self.unseen)

    def is_young(self, entry: TreeEntry) -> bool:
        """Whether the entry could still have changed after this look without showing other times."""
        return entry.ctime_ns > self.taken_ns - TICK_NS

    def knows(self, path: str) -> bool:
        """Whether this look can say that there was, or was not, something at ``path``."""
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
    """Look at a tree; give the earlier look as ``since`` when the two will be compared.

    ``shared``: programs that use the tree live and go on. Never fails for what the tree holds: what could not be seen
    stands in ``unseen``.
    """
    limits = limits or WalkLimits()
    taken_ns, deadline = time.time_ns(), time.monotonic() + limits.seconds
    walk = rooted.walk(limits)
    entries = {entry.path: entry for entry in walk}
    look = Snapshot(entries, {}, dict(walk.unseen), taken_ns)
    return _read(rooted, look, since or Snapshot(), deadline, shared=shared)


def _read(rooted: Rooted, look: Snapshot, since: Snapshot, deadline: float, *, shared: bool) -> Snapshot:
    """The same look with what only reading tells."""
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
                digests[path] = known  # unchanged for certain: not read again
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
    """A file, open for reading; None where it cannot be read: then what ``lstat`` said decides."""
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
    """The hash of an open file; None where it cannot be read."""
    try:
        state = hashlib.sha256()
        for piece in chunks(fd, most_bytes):
            state.update(piece)
        return state.digest()
    except OSError:
        return None


def compare(before: Snapshot, after: Snapshot) -> tuple[FsChange, ...]:
    """The differences, by path. Where a look did not see, nothing is claimed: ask ``truncated`` of both.

    A file that moved unchanged is ``renamed``, also as part of a folder. ``modified`` is another content, type, mode or
    link target. Folders are not modified by what happens in them.
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
            # Somebody could write to it without a trace, and what it held is not known.
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
    """What stays when a thing is renamed. Inode numbers are used again after a removal: the time tells those apart."""
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
    """The same changes with names as ``display_name`` shows them: for results that people and JSON get to see.

    ``collect`` needs the changes as ``compare`` made them.
    """
    return tuple(
        replace(
            change,
            path=display_name(change.path),
            renamed_from=None if change.renamed_from is None else display_name(change.renamed_from),
        )
        for change in changes
    )
