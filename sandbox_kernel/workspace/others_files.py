"""``OthersFiles``: what others have put into the folder of a session, and which of its states are older than that.

A state of a session has a copy of the folder as it was then. What other sessions, single runs and the user changed
later is not in that copy. An undo that goes back to it takes back only what the session itself changed, so the rest is
put in again. The same holds for a state whose cells are run again: they write what they wrote then, over what others
changed since.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.limits import MIB
from sandbox_kernel.workspace.here.placing import look, place_folder, place_link, take_away, write_in_place
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import DIRECTORY, FILE, SYMLINK

#: The most that is remembered of one file, and of all files of a session, that the session has changed afterwards.
MOST_FILE = 16 * MIB
_MOST_BYTES = 64 * MIB


@dataclass(frozen=True)
class Version:
    """What stood at a path. Any other type than that of a file, folder or link: nothing did."""

    type: str
    mode: int
    target: str | None
    data: bytes = b""


class SharedFiles(Protocol):
    """The folder that a session shares with others."""

    def stamp(self, path: str) -> object:
        """Return what tells one version at a path from another; None where nothing is kept of the path."""

    def version(self, path: str) -> Version | None:
        """Return what is at a path with a stamp; None for a file above ``MOST_FILE``."""

    def give(self, path: str, box: Rooted, *, kept: bool = True) -> None:
        """Make a path of a session's folder what it is here; without ``kept``, as if nothing was kept of it."""


@dataclass(frozen=True)
class OlderStates:
    """The states of a session when others' files come: those whose copies do not get them, and the newest of all."""

    copies: frozenset[int] = frozenset()
    newest: int = 0


#: Those of a session that has run nothing.
NO_STATES = OlderStates()


@dataclass(frozen=True)
class _OthersFile:
    """A path that others have changed. ``older`` are the states whose copies do not have that version.

    ``newest`` is the newest state of the session when it came: the cells up to that one ran before it.
    ``replaced`` is that version where the session has changed the path afterwards.
    """

    stamp: object
    older: frozenset[int]
    newest: int
    replaced: Version | None = None


@dataclass(frozen=True)
class PutAgain:
    """What was put in again after an undo, by path.

    ``hold``: what the others changed still holds. ``anew``: the session had changed it in between, so that it is to be
    kept anew. ``waiting``: the session gets it before its next cell.
    """

    hold: frozenset[str]
    anew: frozenset[str]
    waiting: frozenset[str]

    @property
    def is_empty(self) -> bool:
        """Whether nothing was written into the session's folder."""
        return not self.hold and not self.anew

    def is_others(self, path: str) -> bool:
        """Whether what stands at a path is no change of the session."""
        return path in self.hold or path in self.waiting


class OthersFiles:
    """See the module. Called with the lock of the shared folder held."""

    def __init__(self, shared: SharedFiles) -> None:
        self._shared = shared
        self._files: dict[str, _OthersFile] = {}

    def came(self, paths: Iterable[str], states: OlderStates) -> None:
        """Note that these paths are now as others have them."""
        for path in paths:
            if states.newest:
                self._files[path] = _OthersFile(self._shared.stamp(path), states.copies, states.newest)
            else:
                self._files.pop(path, None)

    def will_change(self, paths: Iterable[str]) -> None:
        """Remember the versions of others at paths at which a change of the session is about to be kept."""
        for path in paths:
            known = self._files.get(path)
            if known is None or known.stamp is None or known.stamp != self._shared.stamp(path):
                continue
            try:
                version = self._shared.version(path)
            except SandboxError:
                continue
            if version is not None and self._held() + len(version.data) <= _MOST_BYTES:
                self._files[path] = replace(known, replaced=version)

    def put_again(self, node: int, box: Rooted, waiting: Collection[str]) -> PutAgain:
        """Put what is newer than a state into the folder that was restored to it; leaves out what is waiting."""
        return self._put([path for path, known in self._files.items() if node in known.older], box, waiting)

    def put_over(self, written: Mapping[str, int], box: Rooted, waiting: Collection[str]) -> PutAgain:
        """Put what is newer than cells that ran again over what they wrote; leaves out what is waiting.

        ``written`` has the paths that they wrote, with the state of the cell.
        """
        newest = {path: known.newest for path in written if (known := self._files.get(path)) is not None}
        return self._put([path for path, most in newest.items() if written[path] <= most], box, waiting)

    def _put(self, paths: Iterable[str], box: Rooted, waiting: Collection[str]) -> PutAgain:
        hold: set[str] = set()
        anew: set[str] = set()
        newer = {path: self._files[path] for path in paths if path not in waiting}
        # Where nothing is kept of a path something may have to go: the content of a folder before the folder.
        bare = sorted((path for path, known in newer.items() if known.stamp is None), reverse=True)
        for path in (*bare, *sorted(newer.keys() - set(bare))):
            known = newer[path]
            try:
                if known.stamp == self._shared.stamp(path):
                    self._shared.give(path, box)
                    hold.add(path)
                elif known.stamp is None:
                    self._shared.give(path, box, kept=False)
                    anew.add(path)
                elif known.replaced is not None:
                    _place(path, known.replaced, box)
                    anew.add(path)
            except (SandboxError, OSError):
                continue  # what the session had there then does not leave room for it
        return PutAgain(frozenset(hold), frozenset(anew), frozenset(waiting))

    def now_in(self, node: int, put: PutAgain) -> None:
        """Note that the copy of a state has what was put in again, and that the shared folder has it too."""
        for path, known in list(self._files.items()):
            if path in put.anew:
                known = replace(known, stamp=self._shared.stamp(path), replaced=None)
            self._files[path] = replace(known, older=known.older - {node})

    def _held(self) -> int:
        return sum(len(known.replaced.data) for known in self._files.values() if known.replaced is not None)


def _place(path: str, version: Version, box: Rooted) -> None:
    names = tuple(path.split("/"))
    there = look(box, names)
    if there is not None and there.type != version.type:
        take_away(box, names)
    if version.type == DIRECTORY:
        place_folder(box, names, version.mode)
    elif version.type == SYMLINK and version.target is not None:
        place_link(box, names, version.target)
    elif version.type == FILE:
        write_in_place(box, names, version.data, version.mode)
