"""The files of one ``Sandbox`` object: a private folder on the host that its runs see as /box and leave their files in.

Made when first needed, mode 0700, removed with the sandbox unless it was given. Nothing in it is ever imported or
executed by the host.

A session has a work folder of its own, which rollback restores together with the state; ``FolderLink`` keeps the two in
step. Files are copied between cells: changes of a cell go into the folder of the sandbox, and other changes there
(``write_file``, fresh runs, other sessions) go into the session before its next cell. Large files are not shared, and
the result says so; a notebook keeps them for its next kernel (``LargeFiles``).

A state of a session has a copy of the folder as it was then. What other sessions, single runs and the user changed
later is not in that copy. An undo that goes back to it takes back only what the session itself changed, so the rest is
put in again. The same holds for a state whose cells are run again: they write what they wrote then, over what others
changed since.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sandbox_kernel.errors import BackendUnavailable, SandboxError
from sandbox_kernel.limits import MIB
from sandbox_kernel.model import FsChange, Note, notes
from sandbox_kernel.util.own_folder import make_own_folder
from sandbox_kernel.workspace.changes import Snapshot, compare, snapshot
from sandbox_kernel.workspace.transfer import MAX_PACKED_BYTES, MAX_PACKED_FILES, PACKED, Skipped, collect, pack_files
from sandbox_kernel.workspace.tree.paths import display_name
from sandbox_kernel.workspace.tree.rooted import Rooted, encoded
from sandbox_kernel.workspace.tree.walk import FILE, Entry, WalkLimits

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


class BoxFolder:
    """Thread-safe: runs that end at the same time bring their files in one after the other.

    ``place`` is a private folder of the host that is used and stays when the sandbox ends; None for a new one.
    """

    def __init__(self, place: str | None = None) -> None:
        self._place = place
        #: Held while files are brought in; sessions that share the folder hold it too.
        self.lock = threading.RLock()
        #: Counts what was changed, so that sessions know when to look.
        self.generation = 0 if place is None else 1
        self._root: Rooted | None = None
        self._before = Snapshot()
        self._linked = False
        self._end: weakref.finalize[[str, Rooted], BoxFolder] | None = None

    @property
    def is_used(self) -> bool:
        """Whether anything was put into it, or a session shares it."""
        return self._root is not None or self._linked

    def read(self, path: str) -> bytes:
        """The content of a file."""
        return self.holding(path).read(path)

    def read_part(self, path: str, offset: int, most: int) -> tuple[bytes, int]:
        """Part of a file, and the size of all of it."""
        return self.holding(path).read_part(path, offset, most)

    def holding(self, path: str) -> Rooted:
        """The folder that has the version of a file that programs see."""
        return self.opened()

    def write(self, path: str, data: bytes | str) -> None:
        """Make or replace a file."""
        with self.changing() as root:
            root.write(path, encoded(path, data))

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with everything in it."""
        with self.changing() as root:
            root.remove(path, tree=True)

    @contextlib.contextmanager
    def changing(self) -> Iterator[Rooted]:
        """The folder while its files are changed by the host; sessions look again afterwards."""
        with self.lock:
            try:
                yield self.opened()
            finally:
                self.generation += 1

    def list_dir(self, path: str = ".") -> tuple[Entry, ...]:
        """What a folder holds, sorted by name."""
        return self.opened().list_dir(path)

    def diff(self) -> tuple[FsChange, ...]:
        """What has changed since the folder was made."""
        root = self.opened()
        return compare(self._before, snapshot(root, since=self._before))

    def files(self) -> Mapping[str, bytes]:
        """Everything in the folder, to be put into a sandbox; nothing if it was never used."""
        with self.lock:
            root = self._root if self._place is None else self.opened()
        return pack_files(root) if root is not None else {}

    def keep(self, box: Rooted, changes: Sequence[FsChange]) -> Sequence[Note]:
        """Bring the changed files of a finished run in; returns notes on what was not kept."""
        try:
            root = self.opened()
        except BackendUnavailable as error:
            # It has run: whatever is wrong with the host's disk, its result is not lost.
            return [notes.no_files_kept(error)]
        with self.lock:
            self.generation += 1
            max_bytes, max_files = _room(root, changes)
            left = collect(box, root, changes, max_bytes, max_files, delete=True, reusable=True)
        return [notes.file_not_kept(display_name(item.path), item.type, item.reason) for item in left[:20]]

    def link(self) -> FolderLink:
        """A session's share in this folder."""
        self._linked = True
        return FolderLink(self)

    def close(self) -> None:
        """Remove the folder, unless it was given; may be called twice."""
        with self.lock:
            end, self._end, root, self._root = self._end, None, self._root, None
        if end is not None:
            end()
        elif root is not None:
            root.close()

    def clear(self) -> None:
        """Remove all files."""
        with self.changing() as root:
            root.clear()

    def opened(self) -> Rooted:
        """The folder, made now if nobody needed it before; ``BackendUnavailable`` where there is no room for one."""
        import tempfile  # most sandboxes never need a folder on the host

        with self.lock:
            if self._root is None and self._place is not None:
                self._root = Rooted.at(self._place)
            if self._root is None:
                path = ""
                try:
                    path = tempfile.mkdtemp(prefix="sandbox-kernel-box-")
                    self._root = Rooted.at(path)
                except OSError as error:
                    if path:
                        os.rmdir(path)
                    raise BackendUnavailable(
                        f"the sandbox's own folder cannot be made: {error}; see to the host's disk and open files, or "
                        "name another folder in the environment variable TMPDIR"
                    ) from error
                self._end = weakref.finalize(self, _remove, path, self._root)
            return self._root


def _room(root: Rooted, changes: Iterable[FsChange]) -> tuple[int, int]:
    """What a run may add, in bytes and in files: a folder beyond what a sandbox can be given would end all later runs.

    What the run itself changed makes room first: it is replaced, or gone.
    """
    changed = {path for change in changes for path in (change.path, change.renamed_from)}
    stays = [entry for entry in root.walk(PACKED) if entry.path not in changed]
    held = sum(entry.size for entry in stays if entry.type == FILE)
    return max(0, MAX_PACKED_BYTES - held), max(0, MAX_PACKED_FILES - len(stays))


def _remove(path: str, root: Rooted) -> None:
    root.clear()
    root.close()
    os.rmdir(path)


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
    replaced: Entry | None = None


class FolderLink:
    """Links the work folder of one session to a ``BoxFolder``. Used only by the call that has the session's turn."""

    def __init__(self, folder: BoxFolder) -> None:
        self._folder = folder
        self._look = Snapshot()
        self._seen = 0
        #: What others have put into the folder of the session, by path.
        self._others: dict[str, _OthersFile] = {}
        #: Where files that are not shared stay for the next kernel; None where they end with the session.
        self.large: LargeFiles | None = None
        self._large_given = False

    def another(self) -> FolderLink:
        """Return a link to the same folder for another session."""
        return FolderLink(self._folder)

    def begin(self) -> None:
        """Start with an empty session folder: every shared file counts as new."""
        self._look, self._seen, self._large_given = Snapshot(), 0, False
        self._others = {}

    def push(self, box: Rooted, states: OlderStates = NO_STATES) -> tuple[bool, list[Note]]:
        """Copy changes of the sandbox's folder into the session. Returns whether there were any, and notes.

        ``states`` are those of the session.
        """
        folder, found = self._folder, list[Note]()
        changes: tuple[FsChange, ...] = ()
        with folder.lock:
            if folder.generation != self._seen:
                root = folder.opened()
                before, self._look = self._look, snapshot(root, since=self._look)
                self._seen = folder.generation
                changes = compare(before, self._look)
            if changes:
                left = collect(root, box, changes, MAX_SHARED_BYTES, MAX_SHARED_FILES, delete=True)
                self._came(_paths(changes), states)
                found += _notes(left, "was not put into this session")
        if self.large is None or self._large_given:
            return bool(changes), found
        self._large_given = True
        return bool(changes) or len(self.large) > 0, found + self.large.give(box)

    def pull(self, box: Rooted, changes: Sequence[FsChange]) -> list[Note]:
        """Copy changes of the session's folder into the sandbox's folder. Returns notes on files that were left out."""
        if not changes:
            return []
        wanted = list(_shareable(changes))
        paths = _paths(changes)
        folder = self._folder
        with folder.lock:
            root = folder.opened()
            self._will_change(paths)
            others = snapshot(root, since=self._look)
            held = [entry.size for path, entry in others.entries.items() if path not in paths]
            room, more = max(0, MAX_SHARED_BYTES - sum(held)), max(0, MAX_SHARED_FILES - len(held))
            left = collect(box, root, wanted, room, more, delete=True, reusable=True)
            now = snapshot(root, since=self._look)
            alone = self._seen == folder.generation
            folder.generation += 1
            self._look = now if alone else self._look.taking(now, paths.__contains__)
            if alone:
                self._seen = folder.generation
        large = [change.path for change in changes if _is_large(change)]
        lost: list[Note] = []
        if self.large is not None:
            lost = self.large.follow(box, changes, {*large, *(item.path for item in left if item.type == FILE)})
        most_mb = MAX_SHARED_FILE // MIB
        stays = [notes.large_file_not_shared(display_name(path), most_mb) for path in large[:_NAMED]]
        return stays + _notes(left, "is not shared with other runs") + lost

    def undo(
        self,
        box: Rooted,
        node: int,
        written: Mapping[str, int] | None,
        keep: Callable[[Callable[[str], bool]], object],
    ) -> bool:
        """Put in again what others changed after a state that the session went back to; returns whether there was any.

        ``keep`` then keeps the session's own changes; its argument says whether what stands at a path is others'.
        ``written``: the state was made by cells that ran again and wrote these paths, each with the state of its cell;
        what is newer than that cell is put over them.
        """
        with self._folder.lock:
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
            self.put_in(hold | anew)
            keep(lambda path: path in hold or path in waiting)
            for path, known in list(self._others.items()):
                if path in anew:
                    known = replace(known, stamp=self.stamp(path), replaced=None)
                self._others[path] = replace(known, older=known.older - {node})
            return bool(hold or anew)

    def put_in(self, paths: Collection[str]) -> None:
        """Called when these paths were put into the session's folder by an undo, before its changes are looked for."""

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
                version = self.version(path)
                held = sum(len(one.replaced.data or b"") for one in self._others.values() if one.replaced is not None)
                if version is not None and held + len(version.data or b"") <= _MOST_BYTES:
                    self._others[path] = replace(known, replaced=version)

    def waiting(self) -> set[str]:
        """Return the paths at which others have changed something that the session has not got yet."""
        if self._folder.generation == self._seen:
            return set()
        return _paths(compare(self._look, snapshot(self._folder.opened(), since=self._look)))

    def stamp(self, path: str) -> object:
        """Return what tells one version at a path from another; None where nothing is kept of the path."""
        entry = self._folder.opened().look(tuple(path.split("/")))
        return None if entry is None else entry[1:6]

    def version(self, path: str) -> Entry | None:
        """Return what is at a path with a stamp, with its content; None for a file above ``MOST_FILE``."""
        root, names = self._folder.opened(), tuple(path.split("/"))
        return with_content(root, root.stat(names))

    def give(self, path: str, box: Rooted, *, kept: bool = True) -> None:
        """Make a path of the session's folder what it is here; without ``kept``, as if nothing was kept of it.

        A folder that holds something else stays.
        """
        names, root = tuple(path.split("/")), self._folder.opened()
        entry = root.look(names) if kept else None
        if entry is not None:
            box.put(entry, root)
        elif box.look(names) is not None:
            with contextlib.suppress(SandboxError):
                box.remove(names)


def with_content(root: Rooted, entry: Entry) -> Entry | None:
    """Return an entry with the content of its file; None for a file above ``MOST_FILE``."""
    if not entry.is_file:
        return entry
    return entry._replace(data=root.read(entry.names, MOST_FILE)) if entry.size <= MOST_FILE else None


def _paths(changes: Iterable[FsChange]) -> set[str]:
    return {path for change in changes for path in (change.path, change.renamed_from) if path is not None}


def _is_large(change: FsChange) -> bool:
    return change.kind != "deleted" and change.type == FILE and (change.size or 0) > MAX_SHARED_FILE


def _shareable(changes: Iterable[FsChange]) -> Iterable[FsChange]:
    """Turn the change of a file that is too large into a deletion, so that no outdated version stays shared."""
    for change in changes:
        if not _is_large(change):
            yield change
            continue
        yield replace(change, kind="deleted", renamed_from=None)
        if change.renamed_from is not None:
            yield replace(change, path=change.renamed_from, kind="deleted", renamed_from=None)


def _notes(left: Sequence[Skipped], what: str) -> list[Note]:
    named = [notes.file_not_shared(display_name(item.path), item.type, what, item.reason) for item in left[:_NAMED]]
    return named + ([notes.more_files_not_shared(len(left) - _NAMED)] if len(left) > _NAMED else [])


class LargeFiles:
    """Files of one session that are too large to be shared with other runs, kept at a ``place`` for the next kernel.

    A session of a notebook has them for itself; without this they would end with its process. After each cell that
    changed one, it is copied to a private folder of the host; the first worker of the session's next kernel gets all of
    them back. Bounded in bytes and files; what does not fit is told. Raises ``OSError``.
    """

    def __init__(self, place: str) -> None:
        make_own_folder(place)
        self._place = place
        with Rooted.at(place) as kept:
            walk = kept.walk(WalkLimits(entries=2 * MOST_LARGE_FILES, seconds=5.0))
            self._sizes = {entry.path: entry.size for entry in walk if entry.is_file}

    def __len__(self) -> int:
        return len(self._sizes)

    def give(self, box: Rooted) -> list[Note]:
        """Put all of them into the folder of a new worker. Returns notes on those that could not be put there."""
        wanted = [FsChange(path=path, kind="created", type=FILE) for path in self._sizes]
        with Rooted.at(self._place) as kept:
            left = collect(kept, box, wanted, MOST_LARGE_BYTES, MOST_LARGE_FILES)
        return _notes(left, "is kept and was not put into this session")

    def follow(self, box: Rooted, changes: Iterable[FsChange], unshared: Collection[str]) -> list[Note]:
        """Keep changed files of a session that are not shared, and drop those that are gone or shared now.

        ``changes`` are those of the last cell; other runs do not get the files at ``unshared``. Returns notes on files
        that are not kept.
        """
        changed = _paths(changes)
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
        return _notes(left, "is lost when the kernel ends")
