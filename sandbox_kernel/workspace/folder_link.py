"""``FolderLink``: a session's share in the files of its sandbox, or in the user's folder.

A session has a work folder of its own, which rollback restores together with the state; the link keeps the two in step.
Files are copied between cells: changes of a cell go into the folder of the sandbox, and other changes there
(``write_file``, fresh runs, other sessions, what the user saves) go into the session before its next cell. In a plain
work folder large files are not shared, and the result says so; a notebook keeps them for its next kernel
(``LargeFiles``).

A state of a session has a copy of the folder as it was then. What other sessions, single runs and the user changed
later is not in that copy. An undo that goes back to it takes back only what the session itself changed, so the rest is
put in again. The same holds for a state whose cells are run again: they write what they wrote then, over what others
changed since.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from sandbox_kernel.errors import InvalidRequest, PolicyViolation, SandboxError
from sandbox_kernel.limits import MIB
from sandbox_kernel.model import Note, notes
from sandbox_kernel.util.own_folder import make_own_folder
from sandbox_kernel.util.values import dataclass
from sandbox_kernel.workspace.box_folder import BoxFolder
from sandbox_kernel.workspace.changes import LayerChanges, Now
from sandbox_kernel.workspace.overlay.kept_changes import KeptChanges, Room
from sandbox_kernel.workspace.overlay.layer import CopyTracker
from sandbox_kernel.workspace.overlay.overlay_folder import MOST_NOTED, HereFolder
from sandbox_kernel.workspace.overlay.session_layer import SessionLayer
from sandbox_kernel.workspace.transfer import Skipped
from sandbox_kernel.workspace.tree.paths import display_name, folders_above
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import FILE, GONE, Entry, WalkLimits

#: Limits of shared files. Every fresh run gets a copy of them, so a large data set would slow each run.
MAX_SHARED_FILE = 16 * MIB
MAX_SHARED_BYTES = 64 * MIB
MAX_SHARED_FILES = 5000
#: The most that is kept of one session's large files.
MOST_LARGE_BYTES = 1024 * MIB
MOST_LARGE_FILES = 1000
#: The most that is remembered of one file of others, and of all, that a session has changed afterwards.
MOST_FILE = 16 * MIB
_MOST_BYTES = 64 * MIB
#: Most files that notes name.
_NAMED = 5
#: Changes to the user's folder that are kept before the host asks whether it has worked enough for the cell.
_PART = 500
#: Bounds of one look at a plain work folder; it delays the result of a cell.
PLAIN = WalkLimits(entries=5000, seconds=0.5)


@dataclass(frozen=True)
class OlderStates:
    """The states of a session when others' files come: those whose copies do not get them, and the newest of all."""

    copies: frozenset[int] = frozenset()
    newest: int = 0


@dataclass(frozen=True)
class _OthersFile:
    """A path that others have changed. ``older`` are the states whose copies do not have that version.

    ``newest`` is the newest state of the session when it came: the cells up to that one ran before it.
    ``replaced`` is that version where the session has changed the path afterwards.
    """

    stamp: int | None
    older: frozenset[int]
    newest: int
    replaced: Entry | None = None


class FolderLink:
    """Links the work folder of one session to a ``BoxFolder``. Used only by the call that has the session's turn.

    ``why_copied`` says why a session on the user's folder works on a private copy; empty when it has a layer.
    """

    def __init__(self, folder: BoxFolder) -> None:
        folder.is_linked = True
        self.folder = folder
        self.why_copied = ""
        self._seen = -1
        self._seen_stamps: dict[str, int] = {}
        #: A file that the user changed since then may not be the version that a change of the session is based on.
        self.began_ns = time.time_ns()
        self._layer: SessionLayer | None = None
        #: The looks at what the session changes; set when its worker begins.
        self.tracker: CopyTracker
        #: Versions of the user's files that the session has as copies, and not through its layer.
        self._copied: dict[str, Entry | None] = {}
        #: What others have put into the folder of the session, by path.
        self._others: dict[str, _OthersFile] = {}
        #: Where files that are not shared stay for the next kernel; None where they end with the session.
        self.large: LargeFiles | None = None
        self._large_given = False
        #: Paths that others have changed, while the session is about to be given them.
        self._theirs: set[str] = set()

    @property
    def here(self) -> HereFolder | None:
        """The folder of the sandbox, if it holds changes to one of the user's."""
        return self.folder if isinstance(self.folder, HereFolder) else None

    def begin_over(self, layer: SessionLayer | None, box: Rooted) -> list[Note]:
        """Start with a new worker: its layer holds what was kept when it started.

        Without a layer, a private copy of the user's folder is put into its work folder. A plain work folder may have
        files of a loaded session, which are shared now. Returns notes on gaps.
        """
        self._seen, self._layer, self._others, self._copied = -1, layer, {}, {}
        with self.folder.lock:
            if layer is not None:
                self.tracker, self._seen_stamps = layer.tracker, dict(layer.given)
            elif self.here is not None:
                self._seen_stamps = self.here.kept.stamps()
                self.tracker, copied = self.here.fill_copy(box, shared=True)
                self._copied = dict(copied)
            else:
                self._seen, self._seen_stamps, self._large_given = 0, {}, False
                self.tracker = CopyTracker(box, None, shared=True, limits=PLAIN)
                return self.keep_changes(self.tracker.changes())
        return self.tracker.not_given[:5]

    def bring_in(
        self, box: Rooted, before: Callable[[], None], states: Callable[[], OlderStates] = OlderStates
    ) -> tuple[list[str], list[Note]]:
        """Let the session see the folder as it is: the user's files, changes of others, and no new secrets.

        ``before`` is called before the first path is written, so that what programs have changed since the last look is
        not taken for ours. ``states`` are those of the session. Returns the paths that were written, and notes on those
        that could not be.
        """
        began_ns = time.time_ns()
        folder, layer = self.folder, self._layer
        missing: list[Skipped] = []
        with folder.lock:
            renewed = layer is not None and layer.renew()
            differing = {*self.waiting(), *self._of_user()}
            secrets = layer.to_hide() if layer is not None else []
            try:
                if differing or secrets:
                    self._theirs = differing if self.here is None else set()
                    before()
                if layer is not None:
                    layer.hide(secrets)
            except (SandboxError, OSError) as error:
                if not secrets:
                    raise
                raise PolicyViolation(
                    f"{display_name(secrets[0])} in your folder is kept from programs, and could not be hidden from "
                    f"this session: {error}; undo the last cell, or restart the session"
                ) from None
            finally:
                self._theirs = set()
            # Without renewal a session may have looked at any version of a file since it began.
            self.began_ns = began_ns if renewed or layer is None else layer.began_ns
            if layer is not None:
                layer.let_go()
            kept = folder.kept.entries if differing else {}
            if differing:
                self._seen_stamps = folder.kept.stamps()
            self._seen = folder.generation
            # What is gone goes first, the content of a folder before the folder.
            gone = sorted(differing - kept.keys(), reverse=True) if self.here is None else []
            room = Room(MAX_SHARED_BYTES, MAX_SHARED_FILES)
            for path in (*gone, *sorted(differing.difference(gone))):
                try:
                    if self.here is None and path in kept:
                        size = kept[path].entry.size if kept[path].entry.is_file else 0
                        if size > room.bytes or room.files < 1:
                            raise InvalidRequest(f"its {size} bytes are more than is left of what a session is given")
                        room = Room(room.bytes - size, room.files - 1)
                    self.give(path, box)
                except (SandboxError, OSError) as error:
                    missing.append(Skipped(path=path, type=FILE, reason=str(error)))
            if differing:
                self._show_folders_above(differing)
                self._came(differing, states())
                if layer is not None:
                    layer.renew()
        told = _notes(missing, "was not put into this session")
        if self.large is None or self._large_given:
            return [*differing, *secrets], told
        self._large_given = True
        return [*differing, *self.large.paths()], told + self.large.give(box)

    def _show_folders_above(self, paths: Iterable[str]) -> None:
        """Let the user's files show again in folders that the session had made anew and that hold no change now."""
        if self._layer is None or self.here is None:
            return
        kept = self.here.kept.entries
        for folder in sorted({folder for path in paths for folder in folders_above(path)}):
            if self.here.project.has_folder(folder) and not any(path.startswith(f"{folder}/") for path in kept):
                self._layer.show_through(folder)

    def waiting(self) -> set[str]:
        """Return the paths at which others have changed something, or applied or dropped it, since the last look."""
        if self.folder.generation == self._seen:
            return set()
        now = self.folder.kept.stamps()
        return {path for path in {*now, *self._seen_stamps} if now.get(path) != self._seen_stamps.get(path)}

    def _of_user(self) -> list[str]:
        """Return the copies of the user's files of which the user has another version by now."""
        if self.here is None:
            return []
        kept = self.here.kept.entries
        if self._layer is None:
            users: dict[str, Entry | None] = {entry.path: entry for entry in self.here.project.copied()}
        else:
            users = {path: self.here.project.entry_at(path) for path in self._copied}
        paths = [path for path in {*users, *self._copied} if path not in kept]
        return [path for path in paths if not _same(users.get(path), self._copied.get(path))]

    def give(self, path: str, box: Rooted, *, kept: bool = True) -> None:
        """Make a path of the session's folder what it is here; without ``kept``, as if nothing was kept of it."""
        folder = self.here
        self._copied.pop(path, None)
        if folder is not None and (not kept or path not in folder.kept.entries):
            if self._layer is not None and folder.project.has_folder(path):
                if not any(known.startswith(f"{path}/") for known in folder.kept.entries):
                    self._layer.show_through(path)
            else:
                self._copied[path] = folder.project.entry_at(path)
        self.folder.give(path, box, users=not kept)

    def keep_changes(self, found: LayerChanges, is_enough: Callable[[], bool] = lambda: False) -> list[Note]:
        """Keep what the session changed, until ``is_enough``; returns notes on what was not kept."""
        if not found.now:
            return []
        folder, now = self.folder, {path: one for path, one in found.now.items() if path not in self._theirs}
        files = [change for change in found.changes if change.type == FILE and change.kind != "deleted"]
        large = [change.path for change in files if self.here is None and change.size > MAX_SHARED_FILE]
        # No outdated version stays shared of a file that is too large by now.
        now |= {path: Entry(path, GONE) for path in large}
        with folder.lock:
            alone = folder.generation == self._seen
            self._will_change(now)
            if self.here is not None:
                told, left = self._keep_here(self.here, now, is_enough), []
            else:
                left = folder.take(self.tracker.root, now, Room(MAX_SHARED_BYTES, MAX_SHARED_FILES))
                shown = (display_name(path) for path in large[:_NAMED])
                told = [notes.large_file_not_shared(path, MAX_SHARED_FILE // MIB) for path in shown]
            for path in now:
                kept = folder.kept.entries.get(path)
                if kept is None:
                    self._seen_stamps.pop(path, None)
                else:
                    self._seen_stamps[path] = kept.stamp
            if alone:
                self._seen = folder.generation
        told += _notes(left, "is not shared with other runs")
        if self.large is not None:
            unshared = {*large, *(item.path for item in left if item.type == FILE)}
            told += self.large.follow(self.tracker.root, now, unshared)
        return told

    def _keep_here(self, here: HereFolder, now: Now, is_enough: Callable[[], bool]) -> list[Note]:
        """Keep changes to the user's folder. What is left when the host has worked enough is found again next time."""
        there = sorted(path for path, one in now.items() if one is not None and not one.is_gone)
        told = here.take_noting(self.tracker.root, {path: now[path] for path in now.keys() - {*there}}, self.began_ns)
        for at in range(0, len(there), _PART):
            if at and is_enough():
                self.tracker.forget(there[at:])
                return [*told[:_NAMED], notes.files_kept_later(len(there) - at)]
            part = {path: now[path] for path in there[at : at + _PART]}
            told += here.take_noting(self.tracker.root, part, self.began_ns)
        return told[:MOST_NOTED]

    def undo(
        self, box: Rooted, node: int, written: Mapping[str, int] | None, keep: Callable[[Callable[[str], bool]], object]
    ) -> bool:
        """Put in again what others changed after a state that the session went back to; returns whether there was any.

        ``keep`` then keeps the session's own changes; its argument says whether what stands at a path is others'.
        ``written``: the state was made by cells that ran again and wrote these paths, each with the state of its cell;
        what is newer than that cell is put over them.
        """
        with self.folder.lock:
            # The session gets these before its next cell.
            waiting = self.waiting()
            newer = {
                path: known
                for path, known in self._others.items()
                if path not in waiting
                and (node in known.older if written is None else written.get(path, known.newest + 1) <= known.newest)
            }
            # Paths at which the others' version still holds; and at which the session had changed it in between, so
            # that it is to be kept anew.
            hold: set[str] = set()
            anew: set[str] = set()
            # Where nothing is kept of a path something may have to go: the content of a folder before the folder.
            bare = sorted((path for path, known in newer.items() if known.stamp is None), reverse=True)
            for path in (*bare, *sorted(newer.keys() - set(bare))):
                known = newer[path]
                with contextlib.suppress(SandboxError, OSError):  # what the session had there then leaves it no room
                    if known.stamp == self.stamp(path):
                        self.give(path, box)
                        hold.add(path)
                    elif known.stamp is None:
                        self.give(path, box, kept=False)
                        anew.add(path)
                    elif known.replaced is not None:
                        box.put(known.replaced, in_place=True)
                        anew.add(path)
            if (hold or anew) and self._layer is not None:
                self._layer.renew()
            keep(lambda path: path in hold or path in waiting)
            for path, known in list(self._others.items()):
                if path in anew:
                    known = replace(known, stamp=self.stamp(path), replaced=None)
                self._others[path] = replace(known, older=known.older - {node})
            return bool(hold or anew)

    def _came(self, paths: Iterable[str], states: OlderStates) -> None:
        """Note that these paths are now as others have them."""
        for path in paths:
            if states.newest:
                self._others[path] = _OthersFile(self.stamp(path), states.copies, states.newest)
            else:
                self._others.pop(path, None)

    def _will_change(self, paths: Iterable[str]) -> None:
        """Remember the versions of others at paths at which a change of the session is about to be kept."""
        for path in paths:
            known = self._others.get(path)
            if known is None or known.stamp is None or known.stamp != self.stamp(path):
                continue
            with contextlib.suppress(SandboxError):
                version = self._version(path)
                held = sum(len(one.replaced.data or b"") for one in self._others.values() if one.replaced is not None)
                if version is not None and held + len(version.data or b"") <= _MOST_BYTES:
                    self._others[path] = replace(known, replaced=version)

    def stamp(self, path: str) -> int | None:
        """Return what tells one version at a path from another; None where nothing is kept of the path."""
        kept = self.folder.kept.entries.get(path)
        return None if kept is None else kept.stamp

    def _version(self, path: str) -> Entry | None:
        """Return what is kept at a path, with its content; None for a file above ``MOST_FILE``."""
        kept = self.folder.kept
        if kept.entries[path].is_gone:
            return kept.entries[path].entry
        entry = kept.present(path)
        if not entry.is_file:
            return entry
        return entry._replace(data=kept.root.read(entry.names, MOST_FILE)) if entry.size <= MOST_FILE else None


def _same(one: Entry | None, other: Entry | None) -> bool:
    """Whether two versions are the same for a session; a folder changes with what is in it, which is looked at too."""
    if one is None or other is None:
        return one is other
    return one.mode == other.mode if one.is_dir and other.is_dir else one == other


def _notes(left: Sequence[Skipped], what: str) -> list[Note]:
    named = [notes.file_not_shared(display_name(item.path), item.type, what, item.reason) for item in left[:_NAMED]]
    return named + ([notes.more_files_not_shared(len(left) - _NAMED)] if len(left) > _NAMED else [])


class LargeFiles:
    """Files of one session that are too large to be shared with other runs, kept at a ``place`` for the next kernel.

    After each cell that changed one, it is copied to a private folder of the host; the first worker of the session's
    next kernel gets all of them back. Bounded in bytes and files; what does not fit is told. Raises ``OSError``.
    """

    def __init__(self, place: str) -> None:
        make_own_folder(place)
        self._kept = KeptChanges(Rooted.at(place), None)

    def paths(self) -> list[str]:
        """Return the paths of the files."""
        return [path for path, kept in self._kept.entries.items() if kept.entry.is_file]

    def give(self, box: Rooted) -> list[Note]:
        """Put all of them into the folder of a new worker. Returns notes on those that could not be put there."""
        failed = box.put_tree([self._kept.entries[path].entry for path in self.paths()], self._kept.root)
        left = [Skipped(path=path, type=FILE, reason=str(error)) for path, error in failed.items()]
        return _notes(left, "is kept and was not put into this session")

    def follow(self, box: Rooted, changed: Collection[str], unshared: Collection[str]) -> list[Note]:
        """Keep changed files that other runs do not get (``unshared``) and drop others; returns notes on failures."""
        left: list[Skipped] = []
        for path in sorted(changed):
            skipped = None
            if path in unshared:
                skipped = self._kept.put(box, path, Room(MOST_LARGE_BYTES, MOST_LARGE_FILES))
                left += [skipped] if skipped is not None else []
            if path in self._kept.entries and (path not in unshared or skipped is not None):
                # An outdated version must not pass for the present one.
                self._kept.forget(path)
        return _notes(left, "is lost when the kernel ends")
