"""Copies files between two trees: results out of a sandbox, a work folder into one.

Only regular files and folders are copied. Links, FIFOs, sockets and devices are meaningful on one side only, and a
hostile program uses them to mislead a copy: they are skipped and listed. Nothing is skipped silently, and nothing is
read or written beyond the limits; holes of sparse files count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from sandbox_kernel.errors import InvalidRequest, SandboxError
from sandbox_kernel.ground.values import dataclass
from sandbox_kernel.limits import MIB
from sandbox_kernel.model import FsChange, check_file_name
from sandbox_kernel.workspace.tree.paths import shown
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import DIRECTORY, FILE, Entry, WalkLimits

#: Default limits of a work folder that is copied into a sandbox.
MAX_PACKED_BYTES = 256 * MIB
MAX_PACKED_FILES = 20_000
#: Limits of a walk through such a folder.
PACKED = WalkLimits(entries=MAX_PACKED_FILES, path_bytes=64 * MIB, file_bytes=MAX_PACKED_BYTES, seconds=30.0)


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """An entry that was not copied, and why."""

    path: str
    type: str
    reason: str


def collect(
    source: Rooted,
    destination: Rooted,
    changes: Iterable[FsChange],
    max_bytes: int,
    max_files: int,
    *,
    delete: bool = False,
    reusable: bool = False,
) -> tuple[Skipped, ...]:
    """Copy created, modified and renamed files and folders of ``changes``. Returns what was not copied.

    Set-user, set-group and sticky bits are dropped. Sizes count as shown: holes of a sparse file count. With
    ``delete``, deletions and renames are applied too, and a file may replace a folder or the other way round; a folder
    that holds files which the sandbox did not know stays. With ``reusable``, what cannot be copied into a sandbox again
    is skipped: it would make every later run fail, because a folder that does not fit as a whole is refused.
    """
    order = sorted(changes, key=lambda change: change.path)
    skipped: list[Skipped] = list(_follow_deletions(destination, order)) if delete else []
    bytes_left, files_left = max_bytes, max_files
    for change in order:
        if change.kind == "deleted":
            continue
        names = tuple(change.path.split("/"))
        try:
            entry = source.stat(names)
            reason = _why_not(entry, bytes_left, files_left) or (_why_not_again(entry) if reusable else None)
            if reason is None:
                _copy(source, destination, entry, give_way=delete)
                files_left -= 1
                bytes_left -= entry.size if entry.is_file else 0
        except SandboxError as error:
            reason = str(error)
        if reason is not None:
            skipped.append(Skipped(path=change.path, type=change.type, reason=reason))
    return tuple(skipped)


def _why_not(entry: Entry, bytes_left: int, files_left: int) -> str | None:
    if entry.type not in (FILE, DIRECTORY):
        return f"a {entry.type} is not copied; only files and folders are"
    if files_left < 1:
        return "the limit on the number of files is reached"
    if entry.is_file and entry.size > bytes_left:
        return f"its {entry.size} bytes exceed the {bytes_left} that are left of the limit on bytes"
    return None


def _why_not_again(entry: Entry) -> str | None:
    try:
        check_file_name(entry.path)
    except InvalidRequest as error:
        return f"no sandbox could be given it again: {error}"
    if entry.is_dir and len(entry.names) >= WalkLimits().depth:
        return "it is nested too deep to be looked into"
    return None


def _copy(source: Rooted, destination: Rooted, entry: Entry, give_way: bool) -> None:
    if give_way and destination.has(entry.names) and destination.stat(entry.names).type != entry.type:
        destination.remove(entry.names)
    if entry.is_dir:
        destination.make_folder(entry.names, entry.mode)
    else:
        # The owner can always read and write the copy.
        destination.copy_file(source, entry, entry.bits | 0o600)


def _follow_deletions(destination: Rooted, changes: list[FsChange]) -> Iterator[Skipped]:
    gone = {change.path if change.kind == "deleted" else change.renamed_from: change for change in changes}
    for path in sorted(filter(None, gone), reverse=True):  # the content of a folder before the folder
        names = tuple(path.split("/"))
        try:
            if destination.has(names):
                destination.remove(names)  # fails for a folder with files that the sandbox did not know
        except SandboxError as error:
            yield Skipped(path=path, type=gone[path].type, reason=str(error))


class PackedFiles(Mapping[str, bytes]):
    """The regular files of a tree by path; each is read when it is accessed. Made by ``pack_files``.

    Host memory holds one file at a time. ``folders`` are all folders, ``skipped`` the entries that are not copied.
    """

    def __init__(self, rooted: Rooted, entries: Iterable[Entry]) -> None:
        self._rooted = rooted
        self._files: dict[str, Entry] = {}
        folders: list[str] = []
        skipped: list[Skipped] = []
        for entry in entries:
            if entry.is_file:
                self._files[entry.path] = entry
            elif entry.is_dir:
                folders.append(entry.path)
            else:
                reason = f"a {entry.type} is not copied; only files and folders are"
                skipped.append(Skipped(path=entry.path, type=entry.type, reason=reason))
        self.folders = tuple(folders)
        self.skipped = tuple(skipped)
        self.total_bytes = sum(entry.size for entry in self._files.values())

    def __getitem__(self, path: str) -> bytes:
        entry = self._files[path]
        return self._rooted.read(entry.names, max_bytes=entry.size)

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def pack_files(
    rooted: Rooted, max_bytes: int = MAX_PACKED_BYTES, max_files: int = MAX_PACKED_FILES, *, seconds: float = 30.0
) -> PackedFiles:
    """Return the files of a work folder, to be copied into a sandbox.

    Raises ``InvalidRequest`` for a folder beyond the limits: with part of its input a program would give a wrong
    result instead of an error.
    """
    walk = rooted.walk(WalkLimits(entries=max_files, path_bytes=64 * MIB, file_bytes=max_bytes, seconds=seconds))
    packed = PackedFiles(rooted, walk)
    refuse_partial(walk.unseen, "put into a sandbox", max_bytes, max_files)
    if packed.total_bytes > max_bytes:
        refuse_partial({"": "file_bytes"}, "put into a sandbox", max_bytes, max_files)
    return packed


def refuse_partial(unseen: Mapping[str, str], purpose: str, max_bytes: int, max_files: int) -> None:
    """Raise ``InvalidRequest`` with the reason when a walk did not see everything."""
    if not unseen:
        return
    folder, reason = next(iter(unseen.items()))
    why = {
        "entries": f"it holds more than {max_files} files and folders",
        "file_bytes": f"its files hold more than {max_bytes} bytes",
        "depth": f"the folders below {shown(folder[:80])} are nested too deep",
        "mount": f"{shown(folder)} is a mount of its own",
        "unreadable": f"{shown(folder)} cannot be read",
        "seconds": "it takes too long to look through",
    }.get(reason, "its names are too long")
    raise InvalidRequest(f"the work folder cannot be {purpose}: {why}; remove what is not needed or raise the limit")
