"""What a program did to a work folder: two looks at it and the difference between them.

A look is ``lstat`` of everything, nothing followed and hardly anything read. Size, times, inode and mode tell whether a
file changed; the change time, which no program can set, is among them, so a modification cannot be hidden by putting
the modification time back. Times are coarse, though: a file written in the same tick before and after a look shows the
same ones. The content of files *that* young is hashed, and so is the content of a file that has a hash to compare with.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.limits import MIB
from sandbox_kernel.model import FsChange
from sandbox_kernel.workspace.tree.paths import display_name
from sandbox_kernel.workspace.tree.rooted import Rooted, chunks
from sandbox_kernel.workspace.tree.walk import DIRECTORY, FILE, SYMLINK, Entry, WalkLimits

#: Longer than the coarsest kernel tick (10 ms): a file changed this long before the look can be told from later ones.
TICK_NS = 20_000_000
#: A file beyond this is compared by what ``lstat`` says alone.
HASHED_FILE_BYTES = MIB
#: What one look reads at most.
HASHED_BYTES = 64 * MIB


@dataclass(frozen=True)
class Snapshot:
    """One look at a tree. ``unseen`` maps folders that were not seen in full (``""`` is the root) to the reason."""

    entries: Mapping[str, Entry] = field(default_factory=dict)
    digests: Mapping[str, bytes] = field(default_factory=dict)
    unseen: Mapping[str, str] = field(default_factory=dict)
    taken_ns: int = 0

    @property
    def truncated(self) -> bool:
        """Whether a limit or an unreadable folder kept part of the tree from being seen."""
        return bool(self.unseen)

    def is_young(self, entry: Entry) -> bool:
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


def snapshot(rooted: Rooted, limits: WalkLimits | None = None, *, since: Snapshot | None = None) -> Snapshot:
    """Look at a tree; give the earlier look as ``since`` when the two will be compared.

    Never fails for what the tree holds: what could not be seen stands in ``unseen``.
    """
    limits = limits or WalkLimits()
    taken_ns, deadline = time.time_ns(), time.monotonic() + limits.seconds
    walk = rooted.walk(limits)
    entries = {entry.path: entry for entry in walk}
    look = Snapshot(entries, {}, dict(walk.unseen), taken_ns)
    return replace(look, digests=_digests(rooted, look, since or Snapshot(), deadline))


def _digests(rooted: Rooted, look: Snapshot, since: Snapshot, deadline: float) -> dict[str, bytes]:
    digests: dict[str, bytes] = {}
    budget = HASHED_BYTES
    for path, entry in look.entries.items():
        known = since.digests.get(path)
        if entry.type != FILE or (known is None and not look.is_young(entry)):
            continue
        if known is not None and entry == since.entries[path] and not since.is_young(entry):
            digests[path] = known  # unchanged for certain: not read again
        elif entry.size <= min(HASHED_FILE_BYTES, budget) and time.monotonic() < deadline:
            budget -= entry.size
            digest = _digest(rooted, entry)
            if digest is not None:
                digests[path] = digest
    return digests


def _digest(rooted: Rooted, entry: Entry) -> bytes | None:
    """The hash of a file, None where it cannot be read: then what ``lstat`` said decides."""
    try:
        fd = rooted.open_file(entry.names)
    except SandboxError:
        return None
    try:
        state = hashlib.sha256()
        for piece in chunks(fd, HASHED_FILE_BYTES):
            state.update(piece)
        return state.digest()
    except OSError:
        return None
    finally:
        os.close(fd)


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
            if _differs(old, entry, before.digests.get(path), after.digests.get(path)):
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


def _change(entry: Entry, kind: str) -> FsChange:
    return FsChange(path=entry.path, kind=kind, type=entry.type, size=entry.size)


def _identity(entry: Entry) -> tuple[object, ...]:
    """What stays when a thing is renamed. Inode numbers are used again after a removal: the time tells those apart."""
    return entry.inode, entry.type, entry.size, entry.mtime_ns, entry.target


def _differs(old: Entry, new: Entry, old_digest: bytes | None, new_digest: bytes | None) -> bool:
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
