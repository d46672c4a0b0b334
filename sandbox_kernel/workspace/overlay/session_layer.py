"""The layer of a session's worker over the user's folder, with its looks and copies.

A copy is taken for each checkpoint, so that a rollback or an undo restores the files too. It costs what was changed and
not what is in the folder. Nothing may be written into a layer while it is mounted (the kernel goes on with what it
knew, and later writes are lost), so a copy is put back through the merged folder: what the layer had, or what the
user's folder has.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable

from sandbox_kernel.limits import MIB
from sandbox_kernel.workspace.changes import tells_who_writes
from sandbox_kernel.workspace.folder_copies import FolderCopies, FolderCopy, TooMuch
from sandbox_kernel.workspace.hidden import is_hidden
from sandbox_kernel.workspace.overlay.layer import WALK, LayerView, is_opaque, touched
from sandbox_kernel.workspace.overlay.overlay_folder import HereFolder
from sandbox_kernel.workspace.overlay.project import ProjectFolder
from sandbox_kernel.workspace.tree.beneath import SCAN, in_folder, libc
from sandbox_kernel.workspace.tree.paths import Names, display_name, folders_above
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import DEVICE, Entry

#: How often a running session looks for secrets that were put into a large folder meanwhile, in seconds.
HIDE_AGAIN_S = 2.0
#: The system call has the same number on every architecture.
_FSCONFIG, _RECONFIGURE = 431, 7


class SessionLayer(FolderCopies):
    """The layer of one worker: the looks at it, and its copies for rollback. Belongs to the worker's jail."""

    most_copy_bytes, most_bytes, limits = 64 * MIB, 192 * MIB, WALK

    def __init__(self, folder: HereFolder, box_fd: int, layer_fd: int, settings_fd: int) -> None:
        super().__init__(Rooted(box_fd))
        self._settings_fd = settings_fd
        #: When the program could first look at the folder.
        self.began_ns = time.time_ns()
        #: The stamps of the changes that were put in when the worker started.
        self.given = folder.kept.stamps()
        self.tracker = folder.fill_layer(self.box, layer_fd, shared=True)
        self._source = self.tracker.root
        self._tells = tells_who_writes(layer_fd)
        self._project: ProjectFolder = folder.project
        self._hidden_at = time.monotonic()
        #: The number of the last look at the user's folder after which held names were let go.
        self._looked = 0
        #: The secrets that were found when they were hidden last.
        self._found: tuple[str, ...] | None = None
        self._finding: tuple[str, ...] | None = None

    def renew(self) -> bool:
        """Let programs see the user's folder as it is now; returns whether that is possible here.

        Overlayfs remembers for good what it found under a name in the folder below: a file that the user saves by
        renaming another over it, or puts there after a program looked for it, is not seen. A remount without any change
        drops all names that nobody holds open. The jail gave us the settings of its own mount
        (``gate/namespaces.py``); the owner of its user namespace may do this from outside, root or not.
        """
        settings = self._settings_fd
        return settings >= 0 and libc().syscall(_FSCONFIG, settings, _RECONFIGURE, None, None, 0) == 0

    def to_hide(self) -> list[str]:
        """Return secrets that the user has put into the folder since, and that show. ``hide`` is to follow."""
        if time.monotonic() - self._hidden_at < HIDE_AGAIN_S and not self._project.hidden_files.is_small:
            return []
        self._hidden_at, self._finding = time.monotonic(), self._project.hidden_files.find()
        if self._finding == self._found:
            return []
        self._hidden_at = 0.0
        # What the program itself has put there is its own, and covers what the user has put there since.
        bare = [path for path in self._finding if not self.tracker.root.entry_at(tuple(path.split("/")))]
        shown = [path for path in bare if self._shows(tuple(path.split("/")))]
        if shown != bare:
            self._finding = None  # a folder that is held shows an older one: these may show later
        return shown

    def _shows(self, names: Names) -> bool:
        """Whether something is at a path, or may be: a folder that a program has closed can be opened again."""
        try:
            with in_folder(self.box.fileno(), names[:-1]) as folder:
                os.stat(names[-1], dir_fd=folder, follow_symlinks=False)
        except OSError as error:
            return error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
        return True

    def hide(self, paths: Iterable[str]) -> None:
        """Hide what ``to_hide`` found. Raises an error when that fails; then it is found again before the next cell."""
        for path in paths:
            # Programs may have closed folders; they are the owner's, who is this host.
            os.fchmod(self.box.fileno(), os.fstat(self.box.fileno()).st_mode & 0o7777 | 0o700)
            for folder in [*folders_above(path)][::-1]:
                above = self.box.entry_at(folder)
                if above is not None and above.is_dir:
                    self._set_mode(above, above.mode | 0o700)
            names = tuple(path.split("/"))
            if self._shows(names):  # what lay in a closed folder may have been hidden before
                self.box.remove(names, tree=True)
        self._found, self._hidden_at = self._finding, time.monotonic()

    def let_go(self) -> None:
        """Let names show the user's present file where the session holds the one before it open.

        Such a name survives ``renew``. It is removed through the merged folder, which has the kernel forget it, and
        then the whiteout that this made is removed from the layer.
        """
        self._looked, files = self._project.hidden_files.relisted(self._looked)
        layer = self.tracker.root
        for path, inode in files.items():
            names = tuple(path.split("/"))
            shown = self.box.entry_at(names)
            if shown is None or not shown.is_file or shown.inode == inode or layer.entry_at(names) is not None:
                continue
            self._uncover(names)

    def _uncover(self, names: Names) -> None:
        if self.box.entry_at(names) is not None:
            self.box.take_away(names)
        made = self.tracker.root.entry_at(names)
        if made is not None and made.type == DEVICE:
            self.tracker.root.remove(names)
            self.renew()

    def show_through(self, path: str) -> None:
        """Let the user's folder show through one that the program had made and that was applied; never a secret."""
        secrets = self._project.hidden_files.find()
        secret = is_hidden(path) or any(one.startswith(f"{path}/") for one in secrets)
        if is_opaque(self.tracker.root, path) and not secret:
            with in_folder(self.tracker.root.fileno(), tuple(path.split("/")), SCAN) as fd:
                os.removexattr(fd, "user.overlay.opaque")
            self._found = None

    def _put_back(self, copy: FolderCopy) -> None:
        """Make the merged folder what it was, at every path of which a copy or the present layer knows something."""
        walk = self._source.walk(self.limits)
        present = {entry.path: self._seen(entry) for entry in walk}
        self._refuse_part(walk.unseen)
        then, now = LayerView(self._project, copy.entries), LayerView(self._project, present)
        folders: list[Entry] = []
        made: dict[int, Entry] = {}
        inodes: set[int] = set()
        for path in sorted(touched(then, now)):
            names, wanted = tuple(path.split("/")), then.at(path)
            there = self.box.entry_at(names)
            if there is not None and (wanted is None or there.type != wanted.type):
                self.box.take_away(names)
                there = None
            if wanted is None or (there is not None and path not in then.entries and path not in present):
                continue
            if wanted.is_file and path not in then.entries:
                if wanted.size > self.most_copy_bytes:
                    self._uncover(names)
                    there = self.box.entry_at(names)
                    if there is None or (there.size, there.mtime_ns) != (wanted.size, wanted.mtime_ns):
                        raise TooMuch(f"{display_name(path)} is larger than {self.most_copy_bytes >> 20} MB")
                    continue
                wanted = wanted._replace(data=self._project.root.read(names, self.most_copy_bytes))
            self._put(wanted, made if path in then.entries else {}, inodes)
            folders += [wanted] if wanted.is_dir else []
        for folder in reversed(folders):
            self._finish(folder)

    def _seen(self, entry: Entry) -> Entry:
        return entry._replace(opaque=is_opaque(self.tracker.root, entry.path)) if entry.is_dir else entry
