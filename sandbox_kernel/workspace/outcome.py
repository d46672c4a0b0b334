"""What a run left in its work folder, told by one look after its end.

The folder held just the files that the host had put there, so no look before the start is needed: what the host gave is
compared with what is there now. Called by the backends when the sandbox is dead and nothing can change any more.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.limits import MIB
from sandbox_kernel.model import FsChange, Limit, Note, Status, notes
from sandbox_kernel.workspace.changes import displayed
from sandbox_kernel.workspace.tree.rooted import Rooted, chunks, content_hash
from sandbox_kernel.workspace.tree.walk import DIRECTORY, FILE, TreeEntry, is_cut

#: How many changes a result tells of.
MAX_CHANGES = 1000
#: What is read to tell renamed files from new ones. A program can make any number of files that are as large as one it
#: was given, at no cost to itself when they are holes; beyond this they are told as created and deleted.
RENAMES_READ_BYTES = 64 * MIB


#: Takes changed files out of a work folder; returns notes on what was not kept.
Keep = Callable[[Rooted, Sequence[FsChange]], Sequence[Note]]


class Left(NamedTuple):
    """What a run left in its folder, as its result tells it; ``here`` says how it saw the user's folder."""

    changes: tuple[FsChange, ...] = ()
    notes: tuple[Note, ...] = ()
    here: str = ""


def leaves_files(status: Status, limit: Limit | None) -> bool:
    """Whether the files of a run are kept: a run is a transaction, so one that was stopped leaves nothing."""
    return status in (Status.OK, Status.FAILED) and limit in (None, Limit.OUTPUT)


def files_left(box_fd: int, given: Mapping[str, bytes | str], keep: Keep | None, *, kept: bool) -> Left:
    """Compare a work folder with the files that were given.

    ``keep`` may take files out of the folder, by their true names, unless the run was stopped (``kept`` is False).
    """
    if not given and _is_empty(box_fd):
        return Left()
    with Rooted(box_fd) as box:
        changes, told = changes_since(box, given)
        if keep is not None and changes:
            told = (*told, *(keep(box, changes) if kept else (notes.stopped_run_keeps_no_files(),)))
    return Left(displayed(changes), told)


def changes_since(box: Rooted, given: Mapping[str, bytes | str]) -> tuple[tuple[FsChange, ...], tuple[Note, ...]]:
    """The differences of the work folder, sorted by path, and notes on what could not be told."""
    walk = box.walk()
    entries = {entry.path: entry for entry in walk}
    folders = {parent for name in given for parent in _parents(name)}
    created = [
        entry
        for path, entry in entries.items()
        if path not in given and (path not in folders or entry.type != DIRECTORY)
    ]
    changes: list[FsChange] = []
    missing: dict[tuple[int, bytes], list[str]] = {}
    for name, content in given.items():
        data = content.encode() if isinstance(content, str) else content
        entry = entries.get(name)
        if entry is None:
            missing.setdefault((len(data), content_hash([data])), []).append(name)
        elif entry.type != FILE or entry.size != len(data) or _digest(box, entry) != content_hash([data]):
            changes.append(FsChange(path=name, kind="modified", type=entry.type, size=entry.size))
    sizes = {size for size, _ in missing}
    budget = RENAMES_READ_BYTES
    for entry in created:
        old = None
        if entry.type == FILE and entry.size in sizes and entry.size <= budget:
            budget -= entry.size
            names = missing.get((entry.size, _digest(box, entry)))
            old = names.pop() if names else None
        kind = "created" if old is None else "renamed"
        changes.append(FsChange(path=entry.path, kind=kind, type=entry.type, size=entry.size, renamed_from=old))
    changes += [FsChange(path=name, kind="deleted") for names in missing.values() for name in names]
    changes.sort(key=lambda change: change.path)
    return tuple(changes[:MAX_CHANGES]), tuple(incomplete(is_cut(walk.unseen), len(changes)))


def incomplete(truncated: bool, found: int) -> list[Note]:
    """Why a list of changes does not hold all: the folder was not read in full, or too many were found."""
    cut = [notes.changes_cut(found, MAX_CHANGES)] if found > MAX_CHANGES else []
    return [notes.changes_incomplete(), *cut] if truncated else cut


def _parents(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]


def _is_empty(folder_fd: int) -> bool:
    """Whether a folder holds nothing, without a list of the million names that it may hold."""
    with os.scandir(folder_fd) as scan:
        return next(scan, None) is None


def _digest(box: Rooted, entry: TreeEntry) -> bytes:
    """The hash of a file, read in pieces; empty where it cannot be read."""
    try:
        fd = box.open_file(entry.names)
    except SandboxError:
        return b""
    try:
        return content_hash(chunks(fd, entry.size))
    except OSError:
        return b""
    finally:
        os.close(fd)
