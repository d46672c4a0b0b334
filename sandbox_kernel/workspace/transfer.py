"""A work folder as values: its files, to be put into a sandbox, and everything in it, to be saved with a session.

Nothing is skipped silently, and nothing is read beyond the limits; holes of sparse files count.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import field

from sandbox_kernel.errors import InvalidRequest, SandboxError
from sandbox_kernel.limits import MIB
from sandbox_kernel.model import check_file_name
from sandbox_kernel.util.values import dataclass
from sandbox_kernel.workspace.tree.beneath import as_owner_of, in_folder
from sandbox_kernel.workspace.tree.paths import display_name, folders_above, shown
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import DIRECTORY, FILE, GONE, NO_TIME, SYMLINK, Entry, WalkLimits

#: Default limits of a work folder that is copied into a sandbox.
MAX_PACKED_BYTES = 256 * MIB
MAX_PACKED_FILES = 20_000
#: Limits of a walk through such a folder.
PACKED = WalkLimits(entries=MAX_PACKED_FILES, path_bytes=64 * MIB, file_bytes=MAX_PACKED_BYTES, seconds=30.0)
#: What a saved session may hold.
_SAVED = (FILE, DIRECTORY, SYMLINK, GONE)
#: The longest target of a link, and the latest time of a file: the year 2242; file systems do not store later ones.
_MOST_TARGET, _LATEST_NS = 4000, (1 << 33) * 10**9
#: How many entries that were left out are named.
MOST_LEFT_OUT = 100


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """An entry that was not copied, and why."""

    path: str
    type: str
    reason: str


class PackedFiles(Mapping[str, bytes]):
    """The regular files of a tree by path, each read when it is accessed. ``InvalidRequest``: there is too much."""

    def __init__(self, rooted: Rooted) -> None:
        self._rooted = rooted
        walk = rooted.walk(PACKED)
        self._files = {entry.path: entry for entry in walk if entry.is_file}
        self.total_bytes = sum(entry.size for entry in self._files.values())
        too_large = {"": "file_bytes"} if self.total_bytes > MAX_PACKED_BYTES else {}
        _refuse_partial(walk.unseen or too_large, "put into a sandbox")

    def __getitem__(self, path: str) -> bytes:
        entry = self._files[path]
        return self._rooted.read(entry.names, max_bytes=entry.size)

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def _refuse_partial(unseen: Mapping[str, str], purpose: str) -> None:
    """Raise ``InvalidRequest`` with the reason when a walk did not see everything."""
    if not unseen:
        return
    folder, reason = next(iter(unseen.items()))
    why = {
        "entries": f"it holds more than {MAX_PACKED_FILES} files and folders",
        "file_bytes": f"its files hold more than {MAX_PACKED_BYTES} bytes",
        "depth": f"the folders below {shown(folder[:80])} are nested too deep",
        "mount": f"{shown(folder)} is a mount of its own",
        "unreadable": f"{shown(folder)} cannot be read",
        "seconds": "it takes too long to look through",
    }.get(reason, "its names are too long")
    raise InvalidRequest(f"the work folder cannot be {purpose}: {why}; remove what is not needed or raise the limit")


# Everything in a work folder: taken when a session is saved, and put into another one when it is loaded. A saved file
# may be hostile: ``check_entries`` refuses what ``take_folder`` would not have made. Links that could lead out of the
# folder are never taken and never made. Its owner can always use a file; set-user, set-group and sticky bits go.


@dataclass(frozen=True)
class FolderState:
    """What stands at every path, files with their ``data``; and what was left out, each with the reason."""

    entries: Mapping[str, Entry] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    #: Whether these are changes of a folder of the user, and not a whole work folder.
    is_layer: bool = False
    #: When these changes were taken; 0 where they are not based on what the user had then.
    saved_ns: int = 0

    @property
    def files(self) -> Mapping[str, bytes]:
        """The contents of files by path."""
        return {path: entry.data or b"" for path, entry in self.entries.items() if entry.is_file}


def take_folder(root: Rooted) -> FolderState:
    """Return everything beneath a root; raises ``InvalidRequest`` when it is too much."""
    walk = root.walk(PACKED)
    entries = list(walk)
    _refuse_partial(walk.unseen, "saved")
    return folder_of(entries, lambda entry: root.read_part(entry.names, 0, entry.size)[0])


def folder_of(entries: Iterable[Entry], read: Callable[[Entry], bytes]) -> FolderState:
    """Return the state of these entries; ``read`` returns the content of a file."""
    known: dict[str, Entry] = {}
    left_out: dict[str, str] = {}
    first: dict[int, str] = {}
    total = 0
    for entry in entries:
        why, data = why_no_name(entry.path), None
        if not why and entry.type == SYMLINK and leads_out(entry.path, entry.target or ""):
            why = "the link leads out of the work folder"
        elif not why and entry.type not in _SAVED:
            why = f"a {entry.type} is not saved; only files, folders and links are"
        if why:
            left_out[entry.path] = why
            continue
        if entry.is_file:
            total += entry.size
            if total > MAX_PACKED_BYTES:
                _refuse_partial({"": "file_bytes"}, "saved")
            try:
                data = read(entry)
            except SandboxError as error:
                left_out[entry.path] = f"it was changed while the session was saved: {error}"
                continue
            one = first.setdefault(entry.inode, entry.path)
            if one != entry.path:
                left_out[entry.path] = f"it and {display_name(one)} were one file, and are two files now"
        time_ns = entry.mtime_ns if 0 <= entry.mtime_ns < _LATEST_NS else NO_TIME
        kept = Entry(entry.path, entry.type, len(data or b""), usable_mode(entry), target=entry.target)
        known[entry.path] = kept._replace(mtime_ns=time_ns, data=data)
    return FolderState(known, dict(list(left_out.items())[:MOST_LEFT_OUT]))


def why_no_name(path: str) -> str:
    """Return why no sandbox could be given a file of this name; empty when one can."""
    try:
        check_file_name(path)
    except InvalidRequest as error:
        return f"no sandbox could be given a file of this name again: {error}"
    return ""


def leads_out(path: str, target: str) -> bool:
    """Whether a link could lead out of the folder, also through other links.

    One that goes up goes up first, from the real folder that it is in, and no further than to the root.
    """
    parts = target.split("/")
    up = next((number for number, part in enumerate(parts) if part != ".."), len(parts))
    return not target or target[0] == "/" or up > path.count("/") or ".." in parts[up:] or "\0" in target


def usable_mode(entry: Entry) -> int:
    """Return the mode of a copy: its owner can always use it."""
    return entry.bits | (0o700 if entry.is_dir else 0o600)


def put_folder(state: FolderState, root: Rooted) -> dict[str, str]:
    """Make everything of a state beneath a root. Returns the paths that are not as they were, each with the reason."""
    found: dict[str, str] = {}
    for _, entry in sorted(state.entries.items()):
        root.put(entry._replace(mode=usable_mode(entry)))
    # The time of a folder changes with what is put into it.
    for path, entry in sorted(state.entries.items(), reverse=True):
        if entry.mtime_ns != NO_TIME and not entry.is_gone:
            try:
                with in_folder(root.fileno(), entry.names[:-1]) as folder, as_owner_of(folder):
                    times = (entry.mtime_ns, entry.mtime_ns)
                    os.utime(entry.name, ns=times, dir_fd=folder, follow_symlinks=False)
            except OSError as error:
                found[path] = f"its time could not be set: {error.strerror}"
    return dict(list(found.items())[:MOST_LEFT_OUT])


def check_entries(entries: Collection[Entry]) -> None:
    """Raise ``ValueError`` for entries of a saved file that no folder has."""
    if len({entry.path for entry in entries}) < len(entries):
        raise ValueError("a name twice")
    for entry in entries:
        check_file_name(entry.path)
        if entry.type not in _SAVED or not 0 <= entry.mode <= 0o777 or not NO_TIME <= entry.mtime_ns < _LATEST_NS:
            raise ValueError("not an entry of a folder")
        if entry.size < 0 or (entry.size and not entry.is_file):
            raise ValueError("a content of what is no file")
        os.fsencode(entry.target or "")  # a ValueError for what no file system stores
        if entry.type == SYMLINK and (
            len(entry.target or "") > _MOST_TARGET or leads_out(entry.path, entry.target or "")
        ):
            raise ValueError("a link that leads out")
    closed = {entry.path for entry in entries if not entry.is_dir}
    # What was removed may lie in a folder that was removed too, or has become a file or a link.
    if any(not entry.is_gone and not closed.isdisjoint(folders_above(entry.path)) for entry in entries):
        raise ValueError("a path below a file or a link")
