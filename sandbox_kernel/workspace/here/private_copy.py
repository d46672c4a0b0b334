"""A private copy of the user's folder, for programs that cannot have a layer over it.

It has everything that the folder has but what is hidden: files, folders, empty ones too, and links as they are. What a
program changed is found by a look before it starts and one after its end.
"""

from __future__ import annotations

from collections.abc import Iterable

from sandbox_kernel.errors import InvalidRequest, SandboxError
from sandbox_kernel.limits import MIB
from sandbox_kernel.model import FsChange, Note, notes
from sandbox_kernel.workspace.changes import Snapshot, compare, snapshot
from sandbox_kernel.workspace.here.hidden import is_hidden
from sandbox_kernel.workspace.here.layer_look import LOOK, LayerChanges, Now, same_file
from sandbox_kernel.workspace.here.placing import look, place, place_folder
from sandbox_kernel.workspace.here.project_folder import Mark, ProjectFolder
from sandbox_kernel.workspace.tree.paths import display_name
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import DIRECTORY, FILE

_PAGE = 4096


class CopyLook:
    """Looks at a private copy as ``LayerLook`` does at a layer. ``not_given`` are notes on what is not in it."""

    here = "copy"

    def __init__(self, box: Rooted, project: ProjectFolder) -> None:
        self.layer = box
        self._project = project
        self._last = Snapshot()
        self.not_given: list[Note] = []

    def settle(self) -> None:
        """Take what is there now as it should be."""
        self._last = snapshot(self.layer, LOOK)

    def changes(self) -> LayerChanges:
        """Return what changed since the last look."""
        before, self._last = self._last, snapshot(self.layer, LOOK, since=self._last)
        found = as_found(compare(before, self._last), self.layer, self._project)
        return LayerChanges(found.changes, found.now, before.truncated or self._last.truncated)


def copy_folder(
    project: ProjectFolder, box: Rooted, room: int | None = None
) -> tuple[dict[str, Mark | None], list[Note]]:
    """Put a copy of the user's folder into a work folder; returns the versions, and notes on what could not be copied.

    Raises ``InvalidRequest`` when it is more than a copy may hold, or than ``room`` in bytes.
    """
    entries = project.copied()
    taken = sum(-(-entry.size // _PAGE) * _PAGE for entry in entries if entry.type == FILE)
    if room is not None and taken > room:
        raise InvalidRequest(
            f"{project.path!r} can only be copied here, not shown copy-on-write, and its {taken / MIB:.0f} MB do not "
            f"fit into the work folder, which takes {room / MIB:.0f} MB: raise limits.disk_mb and memory_mb (--disk, "
            "--memory), or name a smaller folder"
        )
    missing: list[Note] = []
    for entry in entries:
        try:
            if entry.type == DIRECTORY:
                # What is in it is put there before it may be closed for writing.
                place_folder(box, entry.names, entry.mode & 0o777 | 0o700)
            else:
                place(project.root, entry, box)
        except (SandboxError, OSError) as error:
            missing.append(notes.file_not_copied(display_name(entry.path), error))
    for entry in reversed(entries):
        if entry.type == DIRECTORY and entry.mode & 0o700 != 0o700:
            place_folder(box, entry.names, entry.mode & 0o777)
    return {entry.path: Mark.of_entry(entry) for entry in entries}, missing


def as_found(changes: Iterable[FsChange], copy: Rooted, project: ProjectFolder) -> LayerChanges:
    """Return changes of a private copy in the form of a look at a layer."""
    listed = tuple(changes)
    now: dict[str, Now] = {}
    for change in listed:
        if change.renamed_from is not None:
            now[change.renamed_from] = Now.GONE
        if change.kind == "deleted":
            now[change.path] = Now.GONE
        else:
            # Whether it is the same as a hidden file is nothing that a program may learn.
            same = not is_hidden(change.path) and _is_users(copy, project, change)
            now[change.path] = Now.SAME if same else Now.CHANGED
    return LayerChanges(listed, now, False)


def _is_users(copy: Rooted, project: ProjectFolder, change: FsChange) -> bool:
    if change.type != DIRECTORY:
        return same_file(copy, project.root, change.path)
    mark, now = project.mark(change.path), look(copy, tuple(change.path.split("/")))
    return mark is not None and now is not None and mark.is_folder and mark.mode & 0o777 == now.mode & 0o777
