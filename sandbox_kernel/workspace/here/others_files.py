"""``OthersFiles``: what others have put into the folder of a session, and which of its states are older than that.

A state of a session has a copy of the folder as it was then. What other sessions, single runs and the user changed
later is not in that copy. An undo that goes back to it takes back only what the session itself changed, so the rest is
put in again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.limits import MIB
from sandbox_kernel.workspace.here.change_log import Kept
from sandbox_kernel.workspace.here.here_folder import HereFolder
from sandbox_kernel.workspace.here.placing import look, place_folder, place_link, take_away, write_in_place
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import DIRECTORY, FILE, SYMLINK

#: The most that is remembered of one file, and of all files of a session, that the session has changed afterwards.
_MOST_FILE = 16 * MIB
_MOST_BYTES = 64 * MIB

Give = Callable[[str, Rooted, bool], None]


@dataclass(frozen=True)
class _Replaced:
    """A change of others that the session has replaced by one of its own."""

    kept: Kept
    data: bytes = b""


@dataclass(frozen=True)
class _OthersFile:
    """A path that others changed last before the session did.

    ``stamp`` is that of the kept change, None for a path that is as the user has it. ``older`` are the states whose
    copies do not have it.
    """

    stamp: int | None
    older: frozenset[int]
    replaced: _Replaced | None = None


class OthersFiles:
    """See the module. Called with the folder's lock held."""

    def __init__(self, folder: HereFolder) -> None:
        self._folder = folder
        self._files: dict[str, _OthersFile] = {}

    def came(self, paths: Iterable[str], older: Collection[int]) -> None:
        """Note that these paths are now as others have them. ``older`` are the states whose copies are from before."""
        states = frozenset(older)
        for path in paths:
            if states:
                self._files[path] = _OthersFile(self._stamp(path), states)
            else:
                self._files.pop(path, None)

    def will_change(self, paths: Iterable[str]) -> None:
        """Remember the versions of others at paths at which a change of the session is about to be kept."""
        for path in paths:
            known, kept = self._files.get(path), self._folder.kept.entries.get(path)
            if known is None or kept is None or known.stamp != kept.stamp:
                continue
            if kept.type != FILE:
                self._files[path] = replace(known, replaced=_Replaced(kept))
            elif kept.size <= min(_MOST_FILE, _MOST_BYTES - self._held()):
                data = self._folder.kept.root.read(tuple(path.split("/")), _MOST_FILE)
                self._files[path] = replace(known, replaced=_Replaced(kept, data))

    def put_again(self, node: int, box: Rooted, but: Collection[str], give: Give) -> tuple[set[str], set[str]]:
        """Put what is newer than a state into the folder that was restored to it.

        Leaves out the paths in ``but``. ``give`` puts in the kept change of a path, or with ``True`` the user's own
        version. Returns the paths whose kept changes hold on, and those at which the session had a change of its own in
        between: the next look finds them.
        """
        hold: set[str] = set()
        again: set[str] = set()
        for path, known in sorted(self._files.items()):
            if node not in known.older or path in but:
                continue
            try:
                if known.stamp == self._stamp(path):
                    give(path, box, False)
                    hold.add(path)
                elif known.stamp is None:
                    give(path, box, True)
                    again.add(path)
                elif known.replaced is not None:
                    _put(path, known.replaced, box)
                    again.add(path)
            except (SandboxError, OSError):
                continue  # what the session had there then does not leave room for it
        return hold, again

    def now_in(self, node: int, again: Collection[str]) -> None:
        """Note that the copy of a state was taken anew; the paths in ``again`` were kept anew too."""
        for path, known in list(self._files.items()):
            if path in again:
                known = _OthersFile(self._stamp(path), known.older)
            if known.older == {node}:
                del self._files[path]
            else:
                self._files[path] = replace(known, older=known.older - {node})

    def _stamp(self, path: str) -> int | None:
        kept = self._folder.kept.entries.get(path)
        return None if kept is None else kept.stamp

    def _held(self) -> int:
        return sum(len(known.replaced.data) for known in self._files.values() if known.replaced is not None)


def _put(path: str, version: _Replaced, box: Rooted) -> None:
    names, kept = tuple(path.split("/")), version.kept
    there = look(box, names)
    if there is not None and there.type != kept.type:
        take_away(box, names)
    if kept.type == DIRECTORY:
        place_folder(box, names, kept.mode)
    elif kept.type == SYMLINK and kept.target is not None:
        place_link(box, names, kept.target)
    elif kept.type == FILE:
        write_in_place(box, names, version.data, kept.mode)
