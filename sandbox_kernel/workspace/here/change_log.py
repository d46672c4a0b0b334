"""``ChangeLog``: the list of a sandbox's changes to the user's folder on disk, so that they outlive a killed kernel.

Lies beside the contents (``kept_changes.py``) in a private folder of the host. Each change is one line at the end of a
file, so that writing one costs nothing of those before it; a line that was cut off is left out. Contents are replaced
whole before their line is written: a kernel that is killed between the two leaves a complete file without a line, which
is found and kept as a change of unknown base.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass

from sandbox_kernel.ground.own_folder import make_own_folder
from sandbox_kernel.workspace.here.project_folder import Mark
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import DIRECTORY, FILE, SYMLINK

_FILES, _LOG = "files", "changes"
#: More than the lines of the most changes that are kept.
_MOST_LOG = 64 << 20
GONE = "gone"


@dataclass(frozen=True)
class Kept:
    """One change: what shall stand at its path, and the version of the user's file that it replaces."""

    #: ``file``, ``directory``, ``symlink``, or ``gone`` when the path shall not be there.
    type: str
    mode: int
    size: int
    target: str | None
    #: What the user had there; None for nothing.
    base: Mark | None
    #: The user's file changed while the program ran, so nobody knows which version the change is based on.
    unsure: bool
    #: Another number for every change, also of other kernels: sessions and ``digest`` know by it what they have seen.
    stamp: int

    @property
    def is_gone(self) -> bool:
        """Whether the path shall not be there."""
        return self.type == GONE


class ChangeLog:
    """The log in one private folder. Raises ``OSError`` when there cannot be one that no other user can change."""

    def __init__(self, place: str) -> None:
        make_own_folder(place)
        #: The folder for the contents of the changed files.
        self.files = os.path.join(place, _FILES)
        make_own_folder(self.files)
        self._place = place
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(os.path.join(place, _LOG), flags, 0o600)

    def note(self, path: str, kept: Kept | None) -> None:
        """Write down what shall stand at a path; None when it is as the user has it. A full disk is not an error."""
        with contextlib.suppress(OSError):
            os.write(self._fd, _line(path, kept))

    def read(self) -> dict[str, Kept]:
        """Return the last state of every path."""
        found: dict[str, Kept] = {}
        with Rooted.at(self._place) as own:
            data, size = own.read_part(_LOG, 0, _MOST_LOG)
        whole = data if len(data) == size else data[: data.rfind(b"\n") + 1]
        for line in whole.split(b"\n"):
            parsed = _parsed(line)
            if parsed is not None:
                path, kept = parsed
                found.pop(path, None)
                if kept is not None:
                    found[path] = kept
        return found

    def rewrite(self, entries: Mapping[str, Kept]) -> None:
        """Replace the log by one that has these changes alone."""
        with Rooted.at(self._place) as own:
            own.write(_LOG, b"".join(_line(path, kept) for path, kept in entries.items()), 0o600)
        self.close()
        self._fd = os.open(os.path.join(self._place, _LOG), os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)

    def close(self) -> None:
        """Close the file; may be called twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _line(path: str, kept: Kept | None) -> bytes:
    if kept is None:
        return json.dumps([path]).encode() + b"\n"
    base = kept.base
    marks = None if base is None else [base.mode, base.inode, base.size, base.mtime_ns, base.ctime_ns]
    facts = [path, kept.type, kept.mode, kept.size, kept.target, marks, kept.unsure, kept.stamp]
    return json.dumps(facts).encode() + b"\n"


def _parsed(line: bytes) -> tuple[str, Kept | None] | None:
    """Return a path and its change; None for a line that is not one."""
    try:
        path, *facts = json.loads(line)
        if not isinstance(path, str):
            return None
        if not facts:
            return path, None
        type_, mode, size, target, marks, unsure, *stamp = facts
        base = None if marks is None else Mark(*(int(mark) for mark in marks))
        if type_ not in (FILE, DIRECTORY, SYMLINK, GONE) or not isinstance(target, str | None):
            return None
        return path, Kept(type_, int(mode), int(size), target, base, bool(unsure), int(stamp[0]) if stamp else 0)
    except (ValueError, TypeError):
        return None
