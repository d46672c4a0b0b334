"""Copies of a session's work folder, one for each checkpoint: a rollback or an undo restores the files too.

They are in the host's memory, where no program of the session can reach them. A file that did not change since the
last copy is not read again. The content of the folder is hostile: no link is followed, only regular files are opened,
and number, depth and size are bounded. A folder beyond the bounds is not restored, and the message says why.

A changed modification time shows only the first write to a page of a mapped file, not later ones. So the kernel is
asked whether any process (a checkpoint too) can still write to a file. While one can, every copy reads the file again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.limits import MIB
from sandbox_kernel.util.linux_calls import closed_after
from sandbox_kernel.util.values import dataclass
from sandbox_kernel.workspace.changes import FileDiff, Snapshot, open_for_writing, tells_who_writes
from sandbox_kernel.workspace.overlay.layer import LayerView
from sandbox_kernel.workspace.overlay.patch import compare_layers
from sandbox_kernel.workspace.overlay.project import ProjectFolder
from sandbox_kernel.workspace.tree.beneath import SCAN, as_owner_of, in_folder
from sandbox_kernel.workspace.tree.rooted import Rooted, chunks
from sandbox_kernel.workspace.tree.walk import MOUNT, SYMLINK, Entry, WalkLimits, type_name

#: Seconds in which folders that nobody may look into are opened, one level after the other.
_OPENING_S = 5.0
#: Seconds that a restore may take: processes that earlier cells left running can make it endless.
RESTORE_S = 20.0
#: About what an entry takes beside its content, and its path by letter.
_ENTRY, _LETTER = 500, 4
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class TooMuch(Exception):
    """Raised when a folder is beyond a bound; the message says which."""


@dataclass(frozen=True)
class FolderCopy(Snapshot):
    """A snapshot with the contents of files. ``problem`` says why it has none; empty when it has."""

    #: The mode of the folder itself.
    mode: int = 0o700
    problem: str = ""


class FolderCopies:
    """The copies of one folder, by the number of the cell after which they were taken."""

    #: The most that one copy, and all copies together, hold; and the most entries of one.
    most_copy_bytes = 32 * MIB
    most_bytes = 96 * MIB
    limits = WalkLimits(entries=5000, depth=32)

    def __init__(self, box: Rooted) -> None:
        self.box = self._source = box
        #: The user's folder, where the copied one is a layer over it.
        self._project: ProjectFolder | None = None
        self._copies: dict[int, FolderCopy] = {}
        #: The copy that was taken or restored last.
        self._last = FolderCopy()
        self._tells = tells_who_writes(box.fileno())
        self._open_until = 0.0

    def close(self) -> None:
        """Close the descriptor of the folder."""
        self.box.close()

    def take(self, cell: int, others: Collection[int]) -> None:
        """Copy the folder for the checkpoint of a cell, and delete the copies of all others but ``others``."""
        self._open_until = time.monotonic() + _OPENING_S
        try:
            copy = self._read()
        except TooMuch as error:
            copy = FolderCopy(problem=str(error))
        except (SandboxError, OSError) as error:
            copy = FolderCopy(problem=f"they could not be read: {error}")
        self._copies = {known: old for known, old in self._copies.items() if known in others} | {cell: copy}
        self._last = copy
        for number in sorted(self._copies):
            if self.held() <= self.most_bytes or self._copies[number] is copy:
                break
            problem = f"older copies of them were deleted at {self.most_bytes >> 20} MB"
            self._copies[number] = FolderCopy(problem=problem)

    def compare(self, before: int, after: int) -> tuple[list[FileDiff], str]:
        """Return how the folder differs between the states after two cells, and what could not be found out."""
        first, second = self.copy_of(before), self.copy_of(after)
        problem = first.problem or second.problem
        if problem:
            return [], problem
        return compare_layers(LayerView(self._project, first.entries), LayerView(self._project, second.entries))

    def held(self) -> int:
        """Return about how many bytes all copies take; entries and contents that copies share count once."""
        every = {id(entry): entry for each in self._copies.values() for entry in each.entries.values()}
        contents = {id(entry.data): len(entry.data) for entry in every.values() if entry.data}
        paths = sum(len(entry.path) + len(entry.target or "") for entry in every.values())
        return _ENTRY * len(every) + _LETTER * paths + sum(contents.values())

    def restore(self, cell: int) -> str:
        """Restore the folder as it was after a cell. Returns an empty string, or why it could not be restored."""
        copy = self.copy_of(cell)
        if copy.problem:
            return copy.problem
        try:
            self._put_back(copy)
        except (TooMuch, SandboxError, OSError) as error:
            return f"they could not all be restored: {error}"
        finally:
            self._last = copy
        return ""

    def copy_of(self, cell: int) -> FolderCopy:
        """Return the copy of a cell; one with a problem when there is none."""
        return self._copies.get(cell) or FolderCopy(problem="no copy of them was kept")

    def _read(self, tries: int = 33) -> FolderCopy:
        size, taken_ns, entries = 0, time.time_ns(), dict[str, Entry]()
        still_open: set[int] = set()
        mode = os.fstat(self._source.fileno()).st_mode & 0o7777
        walk = self._source.walk(self.limits)
        for entry in walk:
            if entry.is_file:
                size += entry.size
                if size > self.most_copy_bytes:
                    raise TooMuch(f"they are larger than {self.most_copy_bytes >> 20} MB")
                data = self._content(entry, still_open)
                size += max(0, len(data) - entry.size)  # it may have grown since
                if size > self.most_copy_bytes:
                    raise TooMuch(f"they are larger than {self.most_copy_bytes >> 20} MB")
                entry = entry._replace(data=data)
            known = self._last.entries.get(entry.path)
            if known is not None and known == entry:
                entry = known  # copies share what did not change
            entries[entry.path] = self._seen(entry)
        closed = [path for path, why in walk.unseen.items() if why == "unreadable" and path]
        # As often as folders may be nested, and for a time: a process that goes on can close them again and again.
        if tries and time.monotonic() < self._open_until and sum(map(self._open_up, closed)):
            return self._read(tries - 1)
        self._refuse_part(walk.unseen)
        return FolderCopy(entries, taken_ns=taken_ns, open=frozenset(still_open), mode=mode)

    def _refuse_part(self, unseen: Mapping[str, str]) -> None:
        """Raise ``TooMuch`` when a walk did not see everything."""
        for why in unseen.values():
            if why == "unreadable":
                raise TooMuch("some of them cannot be read")
            if why == "depth":
                raise TooMuch(f"they are nested more than {self.limits.depth} folders deep")
            if why != MOUNT:
                raise TooMuch(f"they are more than {self.limits.entries}" if why == "entries" else "they are too many")

    def _seen(self, entry: Entry) -> Entry:
        """Add what a subclass knows of an entry."""
        return entry

    def _open_up(self, path: str) -> bool:
        """Let the owner of a folder look into it; False when its mode is not what forbids that."""
        there = self.box.entry_at(path)
        if self._source is not self.box or there is None or not there.is_dir or there.mode & 0o700 == 0o700:
            return False  # nothing is written into a layer
        self._set_mode(there, 0o700)
        return True

    def _content(self, entry: Entry, still_open: set[int]) -> bytes:
        before = self._last.entries.get(entry.path)
        if before is not None and before.data is not None and self._last.still_has(entry):
            return before.data
        readable = entry.mode & 0o400 or self._source is not self.box
        if not readable:
            self._set_mode(entry, entry.mode | 0o400)
        with in_folder(self._source.fileno(), entry.names[:-1]) as folder:
            fd = os.open(entry.name, _READ, dir_fd=folder)
        with closed_after(fd):
            if not readable:
                os.fchmod(fd, entry.mode)
            if open_for_writing(fd, tells=self._tells):
                still_open.add(entry.inode)
            data = b"".join(chunks(fd, self.most_copy_bytes + 1))
        if len(data) > self.most_copy_bytes:
            raise TooMuch(f"they are larger than {self.most_copy_bytes >> 20} MB")
        return before.data if before is not None and before.data is not None and before.data == data else data

    def _put_back(self, copy: FolderCopy) -> None:
        """Make the folder what the copy says. A file that is there is written in place: descriptors stay valid."""
        deadline = time.monotonic() + RESTORE_S
        os.fchmod(self.box.fileno(), 0o700)
        inside: dict[str, dict[str, Entry]] = {"": {}}
        for path, entry in copy.entries.items():
            inside.setdefault(path.rpartition("/")[0], {})[entry.name] = entry
        made: dict[int, Entry] = {}
        inodes: set[int] = set()
        for folder in ("", *(path for path, entry in copy.entries.items() if entry.is_dir)):
            wanted = inside.get(folder, {})
            with in_folder(self.box.fileno(), tuple(folder.split("/")) if folder else (), SCAN) as fd:
                for name in os.listdir(fd):
                    if (left := deadline - time.monotonic()) <= 0:
                        raise OSError(f"it took more than {RESTORE_S:g} s")
                    kind = type_name(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode)
                    if name not in wanted or wanted[name].type != kind:
                        self.box.take_away((*folder.split("/"), name) if folder else (name,), left)
            for entry in wanted.values():
                self._put(entry, made, inodes)
        # Folders last, deepest first: what is put into them changes their times.
        for entry in reversed(list(copy.entries.values())):
            if entry.is_dir:
                self._finish(entry)
        os.fchmod(self.box.fileno(), copy.mode)

    def _put(self, entry: Entry, made: dict[int, Entry], inodes: set[int]) -> None:
        """Restore one name. ``made`` has the files that were restored, by their inodes then; ``inodes`` those of now.

        By these, what was one file is one again, and what was two files is two.
        """
        there = self.box.entry_at(entry.names)
        one = made.get(entry.inode) if entry.is_file else None
        if entry.is_dir:
            mode = entry.mode | 0o700  # never less than it had: a restore that fails half way leaves it so
            self.box.put(entry._replace(mode=mode)) if there is None else self._set_mode(entry, mode)
        elif entry.type == SYMLINK and (there is None or there.target != entry.target):
            self.box.put(entry)
        elif one is not None and (there is None or there.inode != one.inode):
            self.box.take_away(entry.names)
            with in_folder(self.box.fileno(), one.names[:-1]) as source:
                with in_folder(self.box.fileno(), entry.names[:-1]) as folder, as_owner_of(folder):
                    os.link(one.name, entry.name, src_dir_fd=source, dst_dir_fd=folder, follow_symlinks=False)
        elif entry.is_file and one is None:
            if there is not None and there.inode in inodes:
                self.box.take_away(entry.names)
                there = None
            if there is not None:
                self._set_mode(entry, entry.mode | 0o600)
            # Times tell nothing here: a page of a mapping that was read first is written without a new time.
            if there is None or there.size != entry.size or self.box.read(entry.names) != entry.data:
                self.box.put(entry, in_place=True)
            self._finish(entry)
            made[entry.inode] = self.box.stat(entry.names)
            inodes.add(made[entry.inode].inode)

    def _finish(self, entry: Entry) -> None:
        self._set_mode(entry, entry.mode)
        with in_folder(self.box.fileno(), entry.names[:-1]) as folder:
            os.utime(entry.name, ns=(entry.mtime_ns, entry.mtime_ns), dir_fd=folder, follow_symlinks=False)

    def _set_mode(self, entry: Entry, mode: int) -> None:
        """Change the mode of a file or folder; if a link has taken its place, the link is not followed."""
        with in_folder(self.box.fileno(), entry.names[:-1]) as folder:
            itself = os.open(entry.name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        with closed_after(itself):
            os.chmod(f"/proc/self/fd/{itself}", mode & 0o7777)
