"""How the user's folder differs between two states of a session that works on it: two copies of its layer.

Where a copy has nothing, the user's own file shows, in its present version. Nothing of a hidden file is told.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.limits import MIB
from sandbox_kernel.workspace.here.hidden import is_hidden
from sandbox_kernel.workspace.here.layer_copies import CopiedFile
from sandbox_kernel.workspace.here.placing import look
from sandbox_kernel.workspace.here.project_folder import ProjectFolder
from sandbox_kernel.workspace.here.showing.patch import DiffEffort
from sandbox_kernel.workspace.tree.walk import DIRECTORY, FILE, SYMLINK

#: The most files that are told, the longest text of which the lines are told, and the most characters of all.
MOST_FILES = 200
MOST_TEXT = MIB // 4
MOST_LINES = 5000
MOST_PATCHES = MIB

Layer = Mapping[str, CopiedFile]


class FileChange(NamedTuple):
    """A file that differs: path, ``created``, ``modified`` or ``deleted``, and its lines as far as they are told."""

    path: str
    kind: str
    patch: str


class _Version(NamedTuple):
    """What a state has at a path: the type, and the content or target; None when it is too long to be compared."""

    type: str
    data: bytes | None
    #: What tells two versions apart whose content is not read.
    size: int


def compare_layers(project: ProjectFolder, before: Layer, after: Layer) -> tuple[list[FileChange], str]:
    """Return the files that differ, sorted by path, and an empty text or what was left out."""
    found: list[FileChange] = []
    room, left, effort = MOST_PATCHES, 0, DiffEffort()
    for path in sorted({*_touched(project, before), *_touched(project, after)}):
        if before.get(path) is after.get(path) is not None:
            continue
        old, new = _version(project, before, path), _version(project, after, path)
        if old == new:
            continue
        if len(found) == MOST_FILES:
            left += 1
            continue
        kind = "created" if old is None else "deleted" if new is None else "modified"
        patch = _lines(old, new, path, effort)
        if len(patch) > room:
            patch = ""
        room -= len(patch)
        found.append(FileChange(path, kind, patch))
    return found, f"{left} more files differ" if left else ""


def _touched(project: ProjectFolder, layer: Layer) -> Iterator[str]:
    """Yield the paths at which a layer may differ from the user's folder."""
    for path, copied in layer.items():
        if copied.entry.type != DIRECTORY:
            yield path
        if copied.entry.type != DIRECTORY or copied.opaque:
            yield from (entry.path for entry in project.beneath(path))


def _version(project: ProjectFolder, layer: Layer, path: str) -> _Version | None:
    """Return what a program sees at a path with this layer; None for nothing, and for a folder."""
    shows = not is_hidden(path)
    for at in (at for at, sign in enumerate(path) if sign == "/"):
        above = layer.get(path[:at])
        if above is not None and above.entry.type != DIRECTORY:
            return None
        shows = shows and (above is None or not above.opaque)
    own = layer.get(path)
    if own is not None:
        if own.entry.type == SYMLINK:
            return _Version(SYMLINK, os.fsencode(own.entry.target or ""), 0)
        return _Version(FILE, own.data, own.entry.size) if own.entry.type == FILE else None
    names = tuple(path.split("/"))
    users = look(project.root, names) if shows else None
    if users is None or users.type not in (FILE, SYMLINK):
        return None
    if users.type == SYMLINK:
        return _Version(SYMLINK, os.fsencode(users.target or ""), 0)
    try:
        return _Version(FILE, project.root.read(names), users.size)
    except SandboxError:
        return _Version(FILE, None, users.size)


def _lines(old: _Version | None, new: _Version | None, path: str, effort: DiffEffort) -> str:
    """Return a unified diff of two texts; empty when one is no text, is too long, or was not read."""
    texts = []
    for side in (old, new):
        data = b"" if side is None else side.data
        if data is None or len(data) > MOST_TEXT or b"\0" in data:
            return ""
        try:
            texts.append(data.decode().splitlines())
        except UnicodeDecodeError:
            return ""
    was, now = texts
    if max(len(was), len(now)) > MOST_LINES or not effort.suffices(was, now):
        return ""
    return "\n".join(difflib.unified_diff(was, now, path, path, lineterm="", n=1))
