"""Copies of the work folder, one for each checkpoint: a rollback restores the files too.

The gate keeps the copies in its own memory, where no program of the session can reach them. Files that did not change
since the last copy are not read again. The content of the folder is hostile: links are never followed; of special files
only their existence is recorded; number, depth and size are bounded. A folder beyond the bounds is not restored, and
the message says why.

A changed modification time shows only the first write to a page of a mapped file, not later ones. So for each file that
has changed we ask the kernel whether any process (a checkpoint too) can still write to it. While one can, every copy
reads the file again.

Restoring writes into the existing file where there is one, so that descriptors that a checkpoint holds stay valid.
"""

from __future__ import annotations

import difflib
import fcntl
import os
import signal
import stat
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Set, Tuple

    Contents = Dict[Tuple[str, ...], Tuple[int, bytes]]


MAX_BYTES = 32 << 20
MAX_ENTRIES = 5000
MAX_DEPTH = 32
#: Limit for all copies together; beyond it the oldest copies are deleted first.
MAX_TOTAL = 96 << 20
#: File times have the resolution of the kernel's clock: a file younger than this can change and keep its time.
_CLOCK_STEP_NS = 50_000_000


class TooMuch(Exception):
    """Raised when the folder is beyond a bound; the message says which."""


class CopiedEntry:
    """One name in the folder: its stat result, and the content of a file or the target of a link."""

    __slots__ = ("data", "info", "kind")

    def __init__(self, info: os.stat_result, data: bytes) -> None:
        self.info = info
        self.kind = stat.S_IFMT(info.st_mode)
        self.data = data

    def same(self, info: os.stat_result, taken_ns: int) -> bool:
        """Whether a file that now has this stat result cannot have changed since a copy taken at ``taken_ns``."""
        mine = self.info
        return (
            (mine.st_ino, mine.st_size, mine.st_mtime_ns, mine.st_ctime_ns, mine.st_mode)
            == (info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_mode)
        ) and info.st_ctime_ns < taken_ns - _CLOCK_STEP_NS


class FolderCopy:
    """The folder at one moment. ``problem`` is empty, or says why the copy has no content."""

    def __init__(self) -> None:
        self.entries: Dict[Tuple[str, ...], CopiedEntry] = {}
        self.root: os.stat_result | None = None
        self.taken_ns = time.time_ns()
        self.size = 0
        self.problem = ""


class WorkFolder:
    """The copies of one folder, by the number of the cell after which they were taken."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.copies: Dict[int, FolderCopy] = {}
        self._last: FolderCopy | None = None
        #: The copy that was taken or restored last: content that is the same as in it is kept once.
        self._like: FolderCopy | None = None
        #: By the identity of a content: how many copies have it, and its size.
        self._counts: Dict[int, List[int]] = {}
        #: Inodes of files that a process could write to (a mapping counts) when the last copy was taken.
        self._open: Set[int] = set()
        self._tells = tells_who_writes(root)

    def take(self, cell: int) -> Dict[str, Any]:
        """Copy the folder as it is now. Returns the fields of the answer to the host: ``problem`` and ``held``."""
        copy = FolderCopy()
        still_open: Set[int] = set()
        try:
            fd = os.open(self.root, DIR)
            try:
                copy.root = os.fstat(fd)
                self._read(fd, (), copy, still_open)
            finally:
                os.close(fd)
        except TooMuch as error:
            copy.entries, copy.problem = {}, str(error)
        except OSError as error:
            copy.entries, copy.problem = {}, f"they could not be read: {error.strerror}"
        self._open = still_open
        self.forget(cell)
        self.copies[cell] = copy
        self._count(copy, 1)
        self._last = self._like = copy
        self._bound()
        return {"problem": copy.problem, "held": self._held()}

    def forget(self, cell: int) -> None:
        """Delete the copy of a cell."""
        copy = self.copies.pop(cell, None)
        if copy is not None:
            self._count(copy, -1)

    def _count(self, copy: FolderCopy, change: int) -> None:
        """Count the contents of a copy that is new (1) or deleted (-1)."""
        for entry in copy.entries.values():
            counted = self._counts.setdefault(id(entry.data), [0, len(entry.data)])
            counted[0] += change
            if not counted[0]:
                del self._counts[id(entry.data)]

    def _held(self) -> int:
        """Return the bytes of all copies; content that copies share counts once."""
        return sum(size for _, size in self._counts.values())

    def compare(self, before: int, after: int) -> Dict[str, Any]:
        """Return how the folder differs between two cells: ``problem``, and ``files`` as path, kind and patch."""
        copies = [self.copies.get(cell) for cell in (before, after)]
        for copy in copies:
            if copy is None or copy.problem:
                return {"problem": copy.problem if copy is not None else "no copy of them was kept", "files": []}
        first, second = [
            {path: (entry.kind, entry.data) for path, entry in copy.entries.items() if entry.kind != stat.S_IFDIR}
            for copy in copies
            if copy is not None
        ]
        files, cut = compare_files(first, second)
        return {"problem": cut, "files": files}

    def restore(self, cell: int) -> str:
        """Restore the folder from the copy of a cell. Returns an empty string, or why it could not be restored."""
        copy = self.copies.get(cell)
        if copy is None:
            return "no copy of them was kept"
        if copy.problem:
            return copy.problem
        self._last, self._like = None, copy
        try:
            self._restore(copy)
        except OSError as error:
            return f"they could not all be restored: {error.strerror}"
        return ""

    def _bound(self) -> None:
        """Delete the oldest copies until all fit into ``MAX_TOTAL``; data that copies share is counted once."""
        for number in sorted(self.copies):
            copy = self.copies[number]
            if self._held() <= MAX_TOTAL or copy is self._last:
                return
            self._count(copy, -1)
            copy.entries = {}
            copy.problem = f"older copies of them were deleted at {MAX_TOTAL >> 20} MB"

    def _read(self, fd: int, path: Tuple[str, ...], copy: FolderCopy, still_open: Set[int]) -> None:
        if len(path) > MAX_DEPTH:
            raise TooMuch(f"they are nested more than {MAX_DEPTH} folders deep")
        for name in os.listdir(fd):
            info = os.stat(name, dir_fd=fd, follow_symlinks=False)
            here = (*path, name)
            if len(copy.entries) >= MAX_ENTRIES:
                raise TooMuch(f"they are more than {MAX_ENTRIES}")
            data = b""
            if stat.S_ISLNK(info.st_mode):
                data = os.fsencode(os.readlink(name, dir_fd=fd))
            elif stat.S_ISREG(info.st_mode):
                copy.size += info.st_size
                if copy.size > MAX_BYTES:
                    raise TooMuch(f"they are larger than {MAX_BYTES >> 20} MB")
                before = self._last.entries.get(here) if self._last is not None else None
                if before is not None and info.st_ino not in self._open and before.same(info, self._last_taken()):
                    data = before.data
                else:
                    file = open_file(fd, name)
                    if not self._tells or open_for_writing(file):
                        still_open.add(info.st_ino)
                    data = read_file(file, MAX_BYTES)
                    if len(data) > MAX_BYTES:
                        raise TooMuch(f"they are larger than {MAX_BYTES >> 20} MB")
                    like = self._like.entries.get(here) if self._like is not None else None
                    if like is not None and like.data == data:
                        data = like.data
            copy.entries[here] = CopiedEntry(info, data)
            if stat.S_ISDIR(info.st_mode):
                inner = open_folder(fd, name)
                try:
                    self._read(inner, here, copy, still_open)
                finally:
                    os.close(inner)

    def _last_taken(self) -> int:
        return self._last.taken_ns if self._last is not None else 0

    def _restore(self, copy: FolderCopy) -> None:
        os.chmod(self.root, 0o700)
        root = os.open(self.root, DIR)
        made: Dict[int, Tuple[str, ...]] = {}
        try:
            by_depth = sorted(copy.entries.items(), key=lambda item: len(item[0]))
            children: Dict[Tuple[str, ...], Dict[str, CopiedEntry]] = {(): {}}
            for path, entry in by_depth:
                children.setdefault(path[:-1], {})[path[-1]] = entry
            pending: List[Tuple[str, ...]] = [()]
            while pending:
                path = pending.pop()
                fd = walk(root, path)
                try:
                    wanted = children.get(path, {})
                    for name in os.listdir(fd):
                        info = os.stat(name, dir_fd=fd, follow_symlinks=False)
                        if name not in wanted or wanted[name].kind != stat.S_IFMT(info.st_mode):
                            remove(root, fd, name)
                    for name, entry in wanted.items():
                        self._put(root, fd, path, name, entry, made)
                        if entry.kind == stat.S_IFDIR:
                            pending.append((*path, name))
                finally:
                    os.close(fd)
            # Folders last, deepest first: creating their entries has changed their times.
            for path, entry in reversed(by_depth):
                if entry.kind == stat.S_IFDIR:
                    fd = walk(root, path[:-1])
                    try:
                        finish(fd, path[-1], entry.info)
                    finally:
                        os.close(fd)
            if copy.root is not None:
                os.fchmod(root, stat.S_IMODE(copy.root.st_mode))
        finally:
            os.close(root)

    def _put(
        self, root: int, fd: int, path: Tuple[str, ...], name: str, entry: CopiedEntry, made: Dict[int, Tuple[str, ...]]
    ) -> None:
        """Restore one name. ``fd`` is its folder; ``made`` maps inodes of restored files to paths, for hard links."""
        if entry.kind == stat.S_IFDIR:
            try:
                os.mkdir(name, 0o700, dir_fd=fd)
            except FileExistsError:
                set_mode(fd, name, 0o700)
        elif entry.kind == stat.S_IFLNK:
            target = os.fsdecode(entry.data)
            try:
                if os.readlink(name, dir_fd=fd) == target:
                    return
                os.unlink(name, dir_fd=fd)
            except FileNotFoundError:
                pass
            os.symlink(target, name, dir_fd=fd)
        elif entry.kind == stat.S_IFREG:
            first = made.get(entry.info.st_ino) if entry.info.st_nlink > 1 else None
            if first is not None:
                link(root, first, fd, name)
                return
            write_file(fd, name, entry.data, entry.info)
            made[entry.info.st_ino] = (*path, name)
        # Sockets, pipes and devices have no content; one that was removed is not made again.


# How two copies of a folder differ, bounded: paths, kinds, and the changed lines of small texts.
#
# Runs in the gate, because the content never leaves the jail but for this. Standard library only, Python 3.8 or later.

#: The most files that are listed, the longest text that is compared line by line, and the room for all patches: the
#: answer has to fit into one message.
MAX_FILES, MAX_TEXT, MAX_PATCHES = 200, 32 << 10, 20_000
_MAX_LINES = 1000


def compare_files(first: Contents, second: Contents) -> Tuple[List[List[str]], str]:
    """Return each file that differs as path, kind and patch, and an empty text or what was left out."""
    found: List[List[str]] = []
    room = MAX_PATCHES
    differing = sorted(path for path in {*first, *second} if first.get(path) != second.get(path))
    for path in differing[:MAX_FILES]:
        before, after = first.get(path), second.get(path)
        kind = "created" if before is None else "deleted" if after is None else "modified"
        shown = "/".join(path).encode("utf-8", "replace").decode()[:300]
        patch = patch_of(before[1] if before else b"", after[1] if after else b"", shown)
        if len(patch) > room:
            patch = ""
        room -= len(patch)
        found.append([shown, kind, patch])
        room -= len(shown)
        if room < 0:
            break
    left = len(differing) - len(found)
    return found, f"{left} more files differ" if left else ""


def patch_of(before: bytes, after: bytes, name: str) -> str:
    """Return a unified diff of two texts; empty when one is no text or too long."""
    if len(before) > MAX_TEXT or len(after) > MAX_TEXT or b"\0" in before + after:
        return ""
    try:
        old, new = before.decode().splitlines(), after.decode().splitlines()
    except UnicodeDecodeError:
        return ""
    if len(old) > _MAX_LINES or len(new) > _MAX_LINES:
        return ""
    return "\n".join(difflib.unified_diff(old, new, name, name, lineterm="", n=1))


# Open, read, write and remove one file or folder of a hostile work folder without following links.
#
# Every function takes the descriptor of an open folder and a name in it. Where the mode forbids access, it is changed:
# the gate runs as the owner of the files.

DIR = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


#: File systems on which a mapping keeps the opened file itself open, so that leases show mappings too.
_TELLING = (b"tmpfs", b"ext2", b"ext3", b"ext4", b"xfs", b"f2fs")
_F_SETSIG = 10


def tells_who_writes(root: str) -> bool:
    """Whether ``open_for_writing`` can be trusted on the file system of a folder.

    On an overlay it cannot: there a mapping holds a file of the layer beneath.
    """
    device = os.stat(root).st_dev
    place = f"{os.major(device)}:{os.minor(device)}".encode()
    try:
        with open("/proc/self/mountinfo", "rb") as file:
            for line in file:
                mount, _, system = line.partition(b" - ")
                if mount.split()[2] == place:
                    return system.split()[0] in _TELLING
    except OSError:
        pass
    return False


def open_for_writing(file: int) -> bool:
    """Whether any process has a file open for writing, or mapped; ``file`` is our own descriptor, open for reading.

    The kernel grants a read lease only on a file that no process has open for writing. Unlike a search through
    /proc, a process cannot prevent this test. The lease is returned at once; a process that opens the file in that
    moment waits for that.
    """
    try:
        # If a process opens the file now, the kernel sends SIGIO, which would end us; SIGURG is ignored by default.
        fcntl.fcntl(file, _F_SETSIG, signal.SIGURG)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:
        return True  # it is open for writing, or the file system has no leases
    return False


def open_folder(fd: int, name: str) -> int:
    """Open a subfolder; if its mode forbids that, change the mode."""
    try:
        return os.open(name, DIR, dir_fd=fd)
    except PermissionError:
        set_mode(fd, name, 0o700)
        return os.open(name, DIR, dir_fd=fd)


def set_mode(fd: int, name: str, mode: int) -> None:
    """Change the mode of a file or folder; if a link has taken its place, the link is not followed."""
    itself = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
    try:
        os.chmod(f"/proc/self/fd/{itself}", mode)
    finally:
        os.close(itself)


def walk(root: int, path: Tuple[str, ...]) -> int:
    """Open a folder by its path below a root, without following links."""
    fd = os.dup(root)
    for name in path:
        inner = open_folder(fd, name)
        os.close(fd)
        fd = inner
    return fd


def open_file(fd: int, name: str) -> int:
    """Open a regular file for reading, even if its mode forbids that."""
    try:
        return os.open(name, _READ, dir_fd=fd)
    except PermissionError:
        mode = stat.S_IMODE(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode)
        set_mode(fd, name, mode | 0o600)
        file = os.open(name, _READ, dir_fd=fd)
        os.fchmod(file, mode)
        return file


def read_file(file: int, most_bytes: int) -> bytes:
    """Read an open file and close it. Of a file larger than ``most_bytes``, returns slightly more than that."""
    parts, size = [], 0
    try:
        while size <= most_bytes:
            part = os.read(file, 1 << 20)
            if not part:
                break
            parts.append(part)
            size += len(part)
    finally:
        os.close(file)
    return b"".join(parts)


def write_file(fd: int, name: str, data: bytes, info: os.stat_result) -> None:
    """Restore content, mode and times of a file; writes in place where the file still exists."""
    try:
        if read_file(open_file(fd, name), len(data)) == data:
            finish(fd, name, info)
            return
        set_mode(fd, name, 0o600)
        file = os.open(name, _WRITE, dir_fd=fd)
    except FileNotFoundError:
        file = os.open(name, _WRITE | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=fd)
    try:
        os.ftruncate(file, 0)
        view = memoryview(data)
        while view:
            view = view[os.write(file, view) :]
    finally:
        os.close(file)
    finish(fd, name, info)


def finish(fd: int, name: str, info: os.stat_result) -> None:
    """Restore mode and times of a file or folder; called last, because writing changes them."""
    set_mode(fd, name, stat.S_IMODE(info.st_mode))
    os.utime(name, ns=(info.st_atime_ns, info.st_mtime_ns), dir_fd=fd, follow_symlinks=False)


def link(root: int, first: Tuple[str, ...], fd: int, name: str) -> None:
    """Restore a hard link to a file that has been restored already."""
    folder = walk(root, first[:-1])
    try:
        try:
            os.unlink(name, dir_fd=fd)
        except FileNotFoundError:
            pass
        os.link(first[-1], name, src_dir_fd=folder, dst_dir_fd=fd, follow_symlinks=False)
    finally:
        os.close(folder)


def remove(root: int, fd: int, name: str) -> None:
    """Remove a file or folder. Subfolders are first moved to the root, so that any depth can be removed."""
    waiting: List[str] = []

    def unlink(folder: int, entry: str) -> None:
        try:
            os.unlink(entry, dir_fd=folder)
        except IsADirectoryError:
            try:
                # Most folders are empty, and there may be 100 000 of them.
                os.rmdir(entry, dir_fd=folder)
                return
            except OSError:
                pass
            moved = f".removed-{os.urandom(8).hex()}"
            # The move changes the folder's "..", so the folder itself must be writable.
            set_mode(folder, entry, 0o700)
            os.rename(entry, moved, src_dir_fd=folder, dst_dir_fd=root)
            waiting.append(moved)

    unlink(fd, name)
    while waiting:
        current = waiting.pop()
        inner = open_folder(root, current)
        try:
            for entry in os.listdir(inner):
                unlink(inner, entry)
        finally:
            os.close(inner)
        os.rmdir(current, dir_fd=root)
