"""Finds hidden files that the user's repository tracks: git inside does not see them, and takes them for deleted."""

from __future__ import annotations

from collections.abc import Iterable

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.limits import MIB
from sandbox_kernel.model import FsChange, Note, notes
from sandbox_kernel.workspace.here.project_folder import ProjectFolder
from sandbox_kernel.workspace.tree.paths import display_name

#: The list of tracked files of a repository; git writes it anew with most of what it does.
_INDEX = ".git/index"
_MOST_INDEX_BYTES = 64 * MIB
#: How many files a note names.
_NAMED = 5


def git_notes(project: ProjectFolder, changes: Iterable[FsChange]) -> list[Note]:
    """Return a note when git was used inside and the user's repository tracks files that are hidden there."""
    if not any(change.path == _INDEX for change in changes):
        return []
    hidden = [path for path in project.hidden_files.find() if not path.startswith(".git/")]
    if not hidden:
        return []
    try:
        index = project.root.read(_INDEX, _MOST_INDEX_BYTES)
    except SandboxError:
        return []
    tracked = [display_name(path) for path in hidden if _is_tracked(path, index)]
    return [notes.git_sees_deleted(tracked[:_NAMED], len(tracked))] if tracked else []


def _is_tracked(path: str, index: bytes) -> bool:
    """Whether an index lists a file, or a file in a folder of this path.

    Before the name of a file stands its length in two bytes. Versions of the format that shorten names list it
    otherwise: nothing is found then.
    """
    name = path.encode(errors="surrogateescape")
    return len(name).to_bytes(2, "big") + name + b"\0" in index or name + b"/" in index
