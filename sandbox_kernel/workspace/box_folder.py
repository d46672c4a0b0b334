"""The files of one ``Sandbox`` object: a private folder on the host that its runs see as /box and leave their files in.

Sessions have work folders of their own and share this one by copies (``shared_folder.py``).
Made when first needed, mode 0700, removed with the sandbox unless it was given. Nothing in it is ever imported or
executed by the host.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from sandbox_kernel.errors import BackendUnavailable
from sandbox_kernel.model import FsChange, Note, notes
from sandbox_kernel.workspace.changes import Snapshot, compare, snapshot
from sandbox_kernel.workspace.shared_folder import FolderLink
from sandbox_kernel.workspace.transfer import MAX_PACKED_BYTES, MAX_PACKED_FILES, PACKED, collect, pack_files
from sandbox_kernel.workspace.tree.paths import display_name
from sandbox_kernel.workspace.tree.rooted import Rooted, encoded
from sandbox_kernel.workspace.tree.walk import FILE, DirEntry


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
        return self.opened().read(path)

    def read_part(self, path: str, offset: int, most: int) -> tuple[bytes, int]:
        """Part of a file, and the size of all of it."""
        return self.opened().read_part(path, offset, most)

    def write(self, path: str, data: bytes | str) -> None:
        """Make or replace a file."""
        with self.changing() as root:
            root.write(path, encoded(path, data))

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with everything in it."""
        with self.changing() as root:
            root.remove(path, tree=True)

    @contextmanager
    def changing(self) -> Iterator[Rooted]:
        """The folder while its files are changed by the host; sessions look again afterwards."""
        with self.lock:
            try:
                yield self.opened()
            finally:
                self.generation += 1

    def list_dir(self, path: str = ".") -> tuple[DirEntry, ...]:
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
