"""``LargeFiles``: files of one session that are too large to be shared with other runs, kept for the next kernel.

A session of a notebook has them for itself; without this they would end with its process. After each cell that changed
one, it is copied to a private folder of the host; the first worker of the session's next kernel gets all of them back.
Bounded in bytes and files; what does not fit is told. Used only by the call that has the session's turn.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.ground.own_folder import make_own_folder
from sandbox_kernel.limits import MIB
from sandbox_kernel.model import FsChange, Note, notes
from sandbox_kernel.workspace.transfer import collect
from sandbox_kernel.workspace.tree.paths import display_name
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import FILE, WalkLimits

#: The most that is kept of one session.
MOST_LARGE_BYTES = 1024 * MIB
MOST_LARGE_FILES = 1000
#: Most files that notes name.
_NAMED = 5


class LargeFiles:
    """The kept large files of one session, below the host's folder ``place``. Raises ``OSError``."""

    def __init__(self, place: str) -> None:
        make_own_folder(place)
        self._place = place
        with Rooted.at(place) as kept:
            walk = kept.walk(WalkLimits(entries=2 * MOST_LARGE_FILES, seconds=5.0))
            self._sizes = {entry.path: entry.size for entry in walk if entry.type == FILE}

    def __len__(self) -> int:
        return len(self._sizes)

    def give(self, box: Rooted) -> list[Note]:
        """Put all of them into the folder of a new worker. Returns notes on those that could not be put there."""
        wanted = [FsChange(path=path, kind="created", type=FILE) for path in self._sizes]
        with Rooted.at(self._place) as kept:
            left = collect(kept, box, wanted, MOST_LARGE_BYTES, MOST_LARGE_FILES)
        what = "is kept and was not put into this session"
        return [notes.file_not_shared(display_name(one.path), one.type, what, one.reason) for one in left[:_NAMED]]

    def follow(self, box: Rooted, changes: Iterable[FsChange], unshared: Collection[str]) -> list[Note]:
        """Keep changed files that are not shared, and drop those that are gone or shared now.

        Args:
            box: The folder of the session.
            changes: What the last cell changed.
            unshared: Paths of changed files that other runs do not get.

        Returns:
            Notes on files that are not kept.

        """
        changed = {path for change in changes for path in (change.path, change.renamed_from) if path is not None}
        if not unshared and not changed & self._sizes.keys():
            return []
        with Rooted.at(self._place) as kept:
            for path in changed & self._sizes.keys() - set(unshared):
                with contextlib.suppress(SandboxError):
                    kept.remove(tuple(path.split("/")))
                del self._sizes[path]
            held = sum(size for path, size in self._sizes.items() if path not in unshared)
            wanted = [FsChange(path=path, kind="modified", type=FILE) for path in unshared]
            room = MOST_LARGE_BYTES - held, MOST_LARGE_FILES - len(self._sizes.keys() - set(unshared))
            left = collect(box, kept, wanted, *room, reusable=True)
            for path in set(unshared) - {one.path for one in left}:
                self._sizes[path] = kept.stat(tuple(path.split("/"))).size
            for one in left:
                # An outdated version must not pass for the present one.
                if self._sizes.pop(one.path, None) is not None:
                    with contextlib.suppress(SandboxError):
                        kept.remove(tuple(one.path.split("/")))
        what = "is lost when the kernel ends"
        return [notes.file_not_shared(display_name(one.path), one.type, what, one.reason) for one in left[:_NAMED]]
